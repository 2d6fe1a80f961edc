//! Inside of which leases a command runs: what `run` and `acquire --shell` hand down, and what the next of them reads.

use std::env;

use crate::lock::Token;

/// The lease that encloses a command, by its token.
pub const INNERMOST: &str = "TENURE_TOKEN";

/// The tokens of all that enclose it, the outermost first, with colons between them. The innermost alone would not do: the one
/// between may be in another store, or over, and then nothing there leads to those around it.
pub const ALL: &str = "TENURE_TOKENS";

/// How many are handed down: nobody nests so deep, but a shell that acquires and releases in a loop adds one each time. The
/// outermost half stays, for what a shell has added comes after what it was started under.
const MOST: usize = 32;

/// The tokens of the leases inside of which this process runs, the innermost first. They may be of any store, and over.
/// Without [`INNERMOST`] there are none: who may well wait for the lease around him is started without it.
pub fn around() -> Vec<Token> {
    let text = |name| env::var(name).ok().filter(|text: &String| !text.is_empty());
    let mut tokens = outermost_first(text(INNERMOST), text(ALL));
    tokens.reverse();
    tokens
}

/// What a command finds in [`ALL`] that runs inside of one more lease.
pub fn with(own: &Token) -> String {
    let mut tokens = around();
    tokens.reverse();
    tokens.retain(|token| token != own);
    tokens.push(*own);
    let tokens: Vec<String> = bounded(tokens).iter().map(Token::to_string).collect();
    tokens.join(":")
}

/// What is no token is left out, as one of another store is that says nothing here.
fn outermost_first(innermost: Option<String>, all: Option<String>) -> Vec<Token> {
    let Some(innermost) = innermost else {
        return Vec::new();
    };
    let all = all.unwrap_or_default();
    let mut tokens: Vec<Token> = Vec::new();
    for token in all.split(':').chain([&*innermost]) {
        if let Ok(token) = token.parse() {
            tokens.retain(|known| *known != token);
            tokens.push(token);
        }
    }
    bounded(tokens)
}

/// Without those in the middle where there are too many.
fn bounded(mut tokens: Vec<Token>) -> Vec<Token> {
    if tokens.len() > MOST {
        let newest = tokens.len() - MOST / 2;
        tokens.drain(MOST / 2..newest);
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u8) -> Token {
        Token::from_bytes([number; 16])
    }

    fn read(innermost: &str, all: &str) -> Vec<Token> {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        outermost_first(given(innermost), given(all))
    }

    #[test]
    fn the_innermost_comes_last_whether_or_not_it_is_among_all() {
        let (one, two, three) = (token(1), token(2), token(3));
        let both = format!("{one}:{two}");
        assert_eq!(read(&two.to_string(), &both), [one, two]);
        assert_eq!(read(&three.to_string(), &both), [one, two, three]);
        assert_eq!(read(&one.to_string(), &both), [two, one]);
        assert_eq!(read(&one.to_string(), ""), [one]);
        assert_eq!(read("", &both), []);
    }

    #[test]
    fn what_is_no_token_is_left_out() {
        let (one, two) = (token(1), token(2));
        for all in [format!(":x:{one}::{one}1:é"), format!("{one}: {two}:")] {
            assert_eq!(read(&two.to_string(), &all), [one, two], "{all}");
        }
        assert_eq!(read("nonsense", &one.to_string()), [one]);
        assert_eq!(read("nonsense", "nonsense"), []);
    }

    #[test]
    fn of_too_many_the_outermost_and_the_innermost_stay() {
        let all: Vec<String> = (0..100).map(|number| token(number).to_string()).collect();
        let read = read(&token(100).to_string(), &all.join(":"));
        assert_eq!(read.len(), MOST);
        assert_eq!((read[0], read[15]), (token(0), token(15)));
        assert_eq!((read[16], read[31]), (token(85), token(100)));
    }
}
