//! Sockets left behind, keys from files.

use super::*;

#[tokio::test]
async fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let bound = bind_unix(&path).unwrap();
    assert!(bound.address.starts_with("unix:"));
    let second = bind_unix(&path).err().unwrap().to_string();
    assert!(second.contains("a server listens on"), "{second}");
    drop(bound);
    assert!(!path.exists());
    fs::write(&path, "mine").unwrap();
    assert!(bind_unix(&path).is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn keys_come_from_arguments_and_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    fs::write(&path, "# ours\nann:sk-1\nsk-2\n").unwrap();
    let mut args = AccessArgs {
        api_key: vec![ApiKey::parse("bob:sk-3").unwrap()],
        api_key_file: Some(path.clone()),
        cors_origin: Vec::new(),
        cors: false,
        tls_cert: None,
        tls_key: None,
        max_body_mib: 64,
        max_connections: 1,
        keep_alive_s: 5,
    };
    let names = |keys: Vec<ApiKey>| {
        keys.iter()
            .map(|key| key.name().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(keys(&args).unwrap())[..2], ["bob", "ann"]);
    fs::write(&path, "ann:sk-1 rpm=60\n\nbob:sk-2 rpm=many\n").unwrap();
    let error = format!("{:#}", keys(&args).unwrap_err());
    let expected = format!("{}: line 3: `rpm` takes a whole number", path.display());
    assert!(error.starts_with(&expected), "{error}");
    fs::write(&path, "# none\n").unwrap();
    assert!(keys(&args).is_err(), "a locked server must not stand open");
    args.api_key_file = Some(folder.path().join("missing"));
    assert!(keys(&args).is_err());
}
