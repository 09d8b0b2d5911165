//! What stands above what, and what is refused.

use clap::Parser as _;

use super::*;
use crate::args::ServeArgs;

fn gathered(line: &str, variables: &[(&str, &str)]) -> Result<Settings> {
    let arguments = line.split_whitespace().map(OsString::from).collect();
    let pair = |&(name, value): &(&str, &str)| (OsString::from(name), OsString::from(value));
    gather(arguments, variables.iter().map(pair))
}

fn served(settings: Settings) -> Box<ServeArgs> {
    match Cli::try_parse_from(settings.arguments).unwrap().command {
        crate::args::Command::Serve(args) => args,
        _ => panic!("serve was asked for"),
    }
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("andante.toml");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn flags_stand_above_variables_and_those_above_the_file() {
    let (_folder, path) = file(
        "ctx = 1000\nport = 1\nsessions = 2\ncors = true\nbind-threads = false\nmax_stall_ms = \"auto\"\n\
         tenant-weight = [\"a=2\", \"b=3\"]\ntenant-from = [\"key\", \"header\"]\ntenant-sessions = 3\n",
    );
    let line = format!("andante serve -c 4000 --config {path}");
    let variables = [
        ("ANDANTE_CTX", "3000"),
        ("ANDANTE_PORT", "2"),
        ("OTHER", "x"),
    ];
    let settings = gathered(&line, &variables).unwrap();
    let origins = settings.origins.clone();
    let args = served(settings);
    assert_eq!(
        (args.engine.ctx, args.port, args.engine.sessions),
        (Some(4000), 2, 2)
    );
    assert!(args.access.cors && !args.model.compute.bind_threads);
    assert_eq!(args.tenant_weight.len(), 2);
    assert_eq!(args.tenant_from.as_ref().map(Vec::len), Some(2));
    assert_eq!(args.tenant_sessions, Some(3));
    assert_eq!(origins["ctx"], Origin::Flag);
    assert_eq!(origins["port"], Origin::Variable("ANDANTE_PORT".into()));
    assert_eq!(origins["sessions"], Origin::File(path.into()));
    assert!(!origins.contains_key("host"));
}

#[test]
fn other_spellings_of_a_flag_are_the_flag() {
    let (_folder, path) = file("batched-session = 3\n");
    let variables = [("ANDANTE_CONFIG", path.as_str())];
    let args = served(gathered("andante serve", &variables).unwrap());
    assert_eq!(args.engine.sessions, 3);
    let args = served(gathered("andante serve --sessions=5", &variables).unwrap());
    assert_eq!(args.engine.sessions, 5);
    let (_folder, twice) = file("batched-session = 3\nsessions = 4\n");
    let error = gathered(&format!("andante serve --config={twice}"), &[]).unwrap_err();
    assert!(format!("{error:#}").contains("set twice"), "{error:#}");
}

#[test]
fn what_is_wrong_is_named() {
    for (text, expected) in [
        ("ctxx = 1", "`ctxx`: there is no flag --ctxx"),
        ("cors = 7", "`cors`: it is a switch"),
        ("port = [1, 2]", "`port`: it takes one value"),
        ("port = 1979-05-27", "no flag has such a value"),
        ("[server]\nport = 1", "`server`"),
        ("port = ", "andante.toml"),
    ] {
        let (_folder, path) = file(text);
        let error = gathered(&format!("andante serve --config {path}"), &[]).unwrap_err();
        assert!(format!("{error:#}").contains(expected), "{text}: {error:#}");
    }
    let error = gathered("andante serve", &[("ANDANTE_CTXX", "1")]).unwrap_err();
    assert!(
        format!("{error:#}").contains("ANDANTE_CTXX: there is no flag"),
        "{error:#}"
    );
    assert!(gathered("andante serve --config /nowhere.toml", &[]).is_err());
}

#[test]
fn other_commands_and_variables_are_left_alone() {
    let variables = [
        ("ANDANTE_CTXX", "1"),
        ("ANDANTE_API_KEY", "a-secret-of-mine"),
    ];
    let settings = gathered("andante pull --list", &variables).unwrap();
    assert_eq!(settings.arguments.len(), 3);
    let settings = gathered("andante serve", &variables[1..]).unwrap();
    assert_eq!(settings.arguments.len(), 2);
}
