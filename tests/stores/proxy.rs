//! A network that can be cut: whoever connects to it is connected to the server, until nothing gets through any more, and nobody
//! is told. Requests are known by a mark, which is some of their text.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Instant;

pub struct Proxy {
    pub port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_cut: Mutex<bool>,
    mended: Condvar,
    faults: Mutex<Vec<Trap>>,
    /// How often a fault has come about.
    sprung: Mutex<usize>,
    passed: Mutex<Vec<(&'static str, Instant)>>,
}

/// What happens to a request.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// It does not get to the server, and the connection ends.
    Lost,
    /// It does, but the connection ends before it is answered.
    Unanswered,
    /// The network is cut when it has got there.
    Cut,
    /// Nothing, but it is noted when it has got there.
    Noted,
}

struct Trap {
    mark: &'static str,
    fault: Fault,
    count: usize,
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
                let (asking, answering) = ((clone(&near), clone(&far)), (far, near));
                let is_unanswered = Arc::new(AtomicBool::new(false));
                let (state, is_over) = (Arc::clone(&shared), Arc::clone(&is_unanswered));
                thread::spawn(move || {
                    pass(asking, &state, |bytes| state.befalls(bytes, &is_over));
                });
                let state = Arc::clone(&shared);
                thread::spawn(move || {
                    pass(answering, &state, |_| {
                        let is_over = is_unanswered.load(Ordering::SeqCst);
                        is_over.then_some(Fault::Lost)
                    });
                });
            }
        });
        Self { port, state }
    }

    /// The next requests with this mark do not get to the server, and their connections end.
    pub fn lose(&self, mark: &'static str, count: usize) {
        self.state.set(mark, Fault::Lost, count);
    }

    /// The next requests with this mark are done, but the connections end before they are answered.
    pub fn swallow(&self, mark: &'static str, count: usize) {
        self.state.set(mark, Fault::Unanswered, count);
    }

    /// Cuts the network as soon as a request with this mark has got to the server.
    pub fn cut_after(&self, mark: &'static str) {
        self.state.set(mark, Fault::Cut, 1);
    }

    /// Keeps account of when requests with this mark go to the server.
    pub fn note(&self, mark: &'static str) {
        self.state.set(mark, Fault::Noted, usize::MAX);
    }

    /// When the last request with this mark went to the server.
    pub fn last(&self, mark: &'static str) -> Option<Instant> {
        let passed = lock(&self.state.passed);
        let last = passed.iter().rfind(|(known, _)| *known == mark);
        last.map(|(_, when)| *when)
    }

    /// How many requests were lost or not answered.
    pub fn sprung(&self) -> usize {
        *lock(&self.state.sprung)
    }

    pub fn cut(&self) {
        self.state.set_cut(true);
    }

    pub fn mend(&self) {
        self.state.set_cut(false);
    }
}

fn pass(
    (mut from, mut to): (TcpStream, TcpStream),
    state: &State,
    befalls: impl Fn(&[u8]) -> Option<Fault>,
) {
    let mut buffer = [0; 4096];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        let bytes = &buffer[..count];
        let fault = befalls(bytes);
        if fault == Some(Fault::Lost) {
            break;
        }
        // What is on its way arrives late, as it does in a network.
        state.wait_while_cut();
        if to.write_all(bytes).is_err() {
            break;
        }
        if fault == Some(Fault::Cut) {
            state.set_cut(true);
        }
    }
    state.wait_while_cut();
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics")
}

impl State {
    fn set(&self, mark: &'static str, fault: Fault, count: usize) {
        lock(&self.faults).push(Trap { mark, fault, count });
    }

    /// What is to happen to a request.
    fn befalls(&self, bytes: &[u8], is_unanswered: &AtomicBool) -> Option<Fault> {
        let mut traps = lock(&self.faults);
        let has = |mark: &str| {
            let mut parts = bytes.windows(mark.len());
            parts.any(|part| part == mark.as_bytes())
        };
        let trap = traps
            .iter_mut()
            .find(|trap| trap.count > 0 && has(trap.mark))?;
        trap.count -= 1;
        match trap.fault {
            Fault::Noted => lock(&self.passed).push((trap.mark, Instant::now())),
            Fault::Cut => {}
            Fault::Lost | Fault::Unanswered => *lock(&self.sprung) += 1,
        }
        is_unanswered.store(trap.fault == Fault::Unanswered, Ordering::SeqCst);
        Some(trap.fault)
    }

    fn set_cut(&self, is_cut: bool) {
        *lock(&self.is_cut) = is_cut;
        self.mended.notify_all();
    }

    fn wait_while_cut(&self) {
        let mended = self.mended.wait_while(lock(&self.is_cut), |is_cut| *is_cut);
        drop(mended.expect("nobody panics"));
    }
}
