//! What is hidden of the command lines and addresses that the store keeps and shows to all of its users: what is known by its form
//! to be a secret. The form of most secrets tells nothing; they do not belong on a command line, where `ps` shows them too.

use crate::lock::Token;

/// In the place of a secret.
const MARK: &str = "***";

/// A command line's word, or a script that is one, without tokens and passwords.
pub fn hide(text: &str) -> String {
    hide_tokens(&hide_named(&hide_in_urls(text)))
}

/// Without what stands before the `@` of a URL: a password with its user, or a token that some services take for a user.
pub fn hide_in_urls(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("://") {
        shown += before;
        shown += "://";
        let authority = until(after, |c| c == '/' || c.is_whitespace());
        rest = match authority.rfind('@') {
            Some(at) => {
                shown += MARK;
                &after[at..]
            }
            None => after,
        };
    }
    shown + rest
}

/// Without what follows `password=`, as in a URL's query, a connection string, an option or a variable such as `PGPASSWORD`.
fn hide_named(text: &str) -> String {
    const NAME: &str = "password=";
    // Byte for byte as long as the text.
    let lower = text.to_ascii_lowercase();
    let (mut shown, mut from) = (String::with_capacity(text.len()), 0);
    while let Some(at) = lower[from..].find(NAME) {
        let start = from + at + NAME.len();
        let rest = &text[start..];
        let value = match rest.chars().next() {
            Some(quote @ ('\'' | '"')) => {
                let inner = until(&rest[1..], |c| c == quote);
                rest.get(..inner.len() + 2).unwrap_or(rest)
            }
            _ => until(rest, |c| c.is_whitespace() || "&'\"".contains(c)),
        };
        shown += &text[from..start];
        if !value.is_empty() {
            shown += MARK;
        }
        from = start + value.len();
    }
    shown + &text[from..]
}

/// Without whatever could be a token: what has just as many digits, with no other letter or digit beside them.
fn hide_tokens(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find(char::is_alphanumeric) {
        let word = until(&rest[start..], |c| !c.is_alphanumeric());
        shown += &rest[..start];
        shown += match word.parse::<Token>() {
            Ok(_) => MARK,
            Err(_) => word,
        };
        rest = &rest[start + word.len()..];
    }
    shown + rest
}

/// The text up to the first of these characters.
fn until(text: &str, ends: impl Fn(char) -> bool) -> &str {
    text.split(ends).next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef0123456789ABCDEF";

    #[test]
    fn what_could_be_a_token_is_hidden_wherever_it_stands() {
        for (text, shown) in [
            ("{}", "***"),
            ("--token={}", "--token=***"),
            (
                "tenure extend --token {}; x",
                "tenure extend --token ***; x",
            ),
            ("T='{}' ./job", "T='***' ./job"),
            ("{}{}", "{}{}"),
            ("{} {}", "*** ***"),
            ("{}0", "{}0"),
            ("é{}", "é{}"),
            ("sha-{}.tar", "sha-***.tar"),
            ("{", "{"),
        ] {
            let [text, shown] = [text, shown].map(|text| text.replace("{}", TOKEN));
            assert_eq!(hide(&text), shown);
        }
        let of_a_part = &TOKEN[1..];
        assert_eq!(hide(of_a_part), of_a_part);
        let no_digits = TOKEN.replace('a', "g");
        assert_eq!(hide(&no_digits), no_digits);
    }

    #[test]
    fn what_stands_before_the_at_of_a_url_is_hidden() {
        for (text, shown) in [
            ("postgres://ann:p@ss@db/app", "postgres://***@db/app"),
            (
                "https://gh_secret@github.com/a/b",
                "https://***@github.com/a/b",
            ),
            ("https://npm.org/@scope/p", "https://npm.org/@scope/p"),
            ("http://a http://b:c@d", "http://a http://***@d"),
            ("echo a://b ann@web1", "echo a://b ann@web1"),
            ("://:@", "://***@"),
            ("x://", "x://"),
        ] {
            assert_eq!(hide(text), shown);
            assert_eq!(hide_in_urls(text), shown);
        }
    }

    #[test]
    fn what_is_called_a_password_is_hidden() {
        for (text, shown) in [
            ("PGPASSWORD=x psql", "PGPASSWORD=*** psql"),
            ("--password=", "--password="),
            (
                "postgres://h/d?password=x&a=b",
                "postgres://h/d?password=***&a=b",
            ),
            ("host=h password='a b' user=u", "host=h password=*** user=u"),
            ("password=\"a", "password=***"),
            ("password='", "password=***"),
            ("Password=é", "Password=***"),
            ("İpassword=x", "İpassword=***"),
            ("password", "password"),
        ] {
            assert_eq!(hide(text), shown);
        }
    }
}
