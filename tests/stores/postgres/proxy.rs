//! A network that can be cut: whoever connects to it is connected to the server, until nothing gets through any more, and nobody
//! is told.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

pub struct Proxy {
    pub port: u16,
    is_cut: Arc<AtomicBool>,
}

impl Proxy {
    pub fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(("127.0.0.1", server)) else {
                    continue;
                };
                let ends = [(&near, &far), (&far, &near)].map(|(from, to)| {
                    let clone = |end: &TcpStream| end.try_clone().expect("a descriptor");
                    (clone(from), clone(to))
                });
                for (from, to) in ends {
                    let cut = Arc::clone(&cut);
                    thread::spawn(move || pass(from, to, &cut));
                }
            }
        });
        Self { port, is_cut }
    }

    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    pub fn mend(&self) {
        self.is_cut.store(false, Ordering::Relaxed);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut buffer = [0; 4096];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        // What is on its way arrives late, as it does in a network.
        while is_cut.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    while is_cut.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(10));
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}
