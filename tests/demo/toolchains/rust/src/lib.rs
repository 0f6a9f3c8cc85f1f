//! What a build of Rust does: a crate of the registry, threads, a child, a server.

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        process::Command,
        thread,
    };

    #[test]
    fn a_crate_of_the_registry() {
        assert_eq!(itoa::Buffer::new().format(u64::MAX), "18446744073709551615");
    }

    #[test]
    fn threads() {
        let parts: Vec<_> = (0..4u64).map(|part| thread::spawn(move || (0..=100).filter(|n| n % 4 == part).sum::<u64>())).collect();
        assert_eq!(parts.into_iter().map(|part| part.join().unwrap()).sum::<u64>(), 5050);
    }

    #[test]
    fn a_child() {
        assert_eq!(Command::new("echo").arg("child").output().unwrap().stdout, b"child\n");
    }

    #[test]
    fn a_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || listener.accept().unwrap().0.write_all(b"served").unwrap());
        let mut page = String::new();
        TcpStream::connect(address).unwrap().read_to_string(&mut page).unwrap();
        server.join().unwrap();
        assert_eq!(page, "served");
    }
}
