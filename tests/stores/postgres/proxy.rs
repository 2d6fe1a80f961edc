//! A network that can be cut: whoever connects to it is connected to the server, until nothing gets through any more, and nobody
//! is told.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub struct Proxy {
    pub port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_cut: Mutex<bool>,
    mended: Condvar,
    cuts_in_change: AtomicBool,
    /// So many commits are still to be done and not answered.
    unanswered: AtomicUsize,
    /// Those for which this was so.
    swallowed: AtomicUsize,
}

impl Proxy {
    pub fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(("127.0.0.1", server)) else {
                    continue;
                };
                let clone = |end: &TcpStream| end.try_clone().expect("a descriptor");
                let ends = [(clone(&near), clone(&far)), (far, near)];
                let has_committed = Arc::new(AtomicBool::new(false));
                for (which, (from, to)) in ends.into_iter().enumerate() {
                    let (state, has_committed) = (Arc::clone(&shared), Arc::clone(&has_committed));
                    thread::spawn(move || {
                        let role = if which == 0 {
                            Role::Asks
                        } else {
                            Role::Answers
                        };
                        pass(from, to, &state, role, &has_committed);
                    });
                }
            }
        });
        Self { port, state }
    }

    /// The next commits are done, but the connections end before they are answered.
    pub fn swallow_commits(&self, count: usize) {
        self.state.unanswered.store(count, Ordering::SeqCst);
    }

    pub fn swallowed(&self) -> usize {
        self.state.swallowed.load(Ordering::SeqCst)
    }

    /// Cuts the network as soon as somebody has locked the row that all changes lock.
    pub fn cut_in_a_change(&self) {
        self.state.cuts_in_change.store(true, Ordering::SeqCst);
    }

    pub fn cut(&self) {
        self.state.set_cut(true);
    }

    pub fn mend(&self) {
        self.state.set_cut(false);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Asks,
    Answers,
}

fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    state: &State,
    role: Role,
    has_committed: &AtomicBool,
) {
    let mut buffer = [0; 4096];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        let bytes = &buffer[..count];
        if role == Role::Asks && bytes.ends_with(b"commit\0") {
            let one_less = |left: usize| left.checked_sub(1);
            let take = state
                .unanswered
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
            has_committed.store(take.is_ok(), Ordering::SeqCst);
        } else if role == Role::Answers && has_committed.load(Ordering::SeqCst) {
            state.swallowed.fetch_add(1, Ordering::SeqCst);
            break;
        }
        let is_change = bytes.windows(10).any(|part| part == b"for update");
        if role == Role::Asks && is_change && state.cuts_in_change.swap(false, Ordering::SeqCst) {
            if to.write_all(bytes).is_err() {
                break;
            }
            state.set_cut(true);
            continue;
        }
        // What is on its way arrives late, as it does in a network.
        state.wait_while_cut();
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    state.wait_while_cut();
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

impl State {
    fn set_cut(&self, is_cut: bool) {
        *self.is_cut.lock().expect("nobody panics") = is_cut;
        self.mended.notify_all();
    }

    fn wait_while_cut(&self) {
        let is_cut = self.is_cut.lock().expect("nobody panics");
        let mended = self.mended.wait_while(is_cut, |is_cut| *is_cut);
        drop(mended.expect("nobody panics"));
    }
}
