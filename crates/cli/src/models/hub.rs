//! Files on a Hugging Face style hub: `GET {hub}/{owner}/{repo}/resolve/{revision}/{file}`.
//!
//! A download can be broken off and taken up again; its size and, for large files, its SHA-256 are checked. The hub
//! names both in the headers of its first answer (`x-linked-size`, `x-linked-etag`), before it redirects to storage.
//! The `hf-hub` crate would do this too, at the price of some 200 further crates for uploads and its block store.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use andante_gguf::PartName;
use anyhow::{Context, Result, bail};
use ureq::Agent;
use ureq::http::{HeaderMap, StatusCode};

use super::{Store, lock, verify};
use crate::progress;

/// How often a broken transfer is taken up again before giving up.
const RETRIES: u32 = 5;

/// A file in a repository of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubFile {
    repository: String,
    revision: String,
    path: String,
}

impl FromStr for HubFile {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || format!("hf:{text} is not of the form hf:owner/repo/file.gguf");
        let (owner, rest) = text.split_once('/').with_context(wrong)?;
        let (repository, path) = rest.split_once('/').with_context(wrong)?;
        let (repository, revision) = repository.split_once('@').unwrap_or((repository, "main"));
        let safe = |part: &str| !part.is_empty() && part != "." && part != "..";
        if ![owner, repository, revision].into_iter().all(safe) || !path.split('/').all(safe) {
            bail!(wrong());
        }
        Ok(Self {
            repository: format!("{owner}/{repository}"),
            revision: revision.into(),
            path: path.into(),
        })
    }
}

impl HubFile {
    /// All files of a split model, or just this one.
    fn parts(&self) -> Vec<Self> {
        let path = Path::new(&self.path);
        let Some(name) = PartName::parse(path) else {
            return vec![self.clone()];
        };
        let part = |number| {
            let sibling = path.with_file_name(
                PartName {
                    number,
                    ..name.clone()
                }
                .to_string(),
            );
            Self {
                path: sibling.to_string_lossy().into_owned(),
                ..self.clone()
            }
        };
        (1..=name.count).map(part).collect()
    }
}

/// The path of the first file, after all files of the model are there.
pub(super) fn fetch(store: &Store, file: &HubFile) -> Result<PathBuf> {
    let mut first = None;
    for part in file.parts() {
        let path = fetch_file(store, &part)?;
        first.get_or_insert(path);
    }
    first.context("a model has at least one file")
}

fn fetch_file(store: &Store, file: &HubFile) -> Result<PathBuf> {
    let target = store
        .folder
        .join("hub")
        .join(&file.repository)
        .join(&file.revision)
        .join(&file.path);
    let _lock = lock(&target)?;
    if target.is_file() {
        return Ok(target);
    }
    let url = format!(
        "{}/{}/resolve/{}/{}",
        store.hub, file.repository, file.revision, file.path
    );
    let transfer = Transfer {
        agent: agent(),
        url,
        token: store.token.as_deref(),
    };
    let facts = transfer.facts()?;
    let part = target.with_extension("part");
    let bar = progress::bytes(facts.size.unwrap_or(0), &file.path);
    let mut tries = 0;
    while let Err(error) = transfer.resume(&part, &facts, &bar) {
        tries += 1;
        if tries > RETRIES || error.downcast_ref::<Refused>().is_some() {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(200 << tries));
    }
    bar.finish_and_clear();
    if let Some(sha256) = &facts.sha256 {
        verify(&part, sha256)?;
    }
    fs::rename(&part, &target).with_context(|| format!("cannot write {}", target.display()))?;
    fs::remove_file(version_file(&part))?;
    Ok(target)
}

fn agent() -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(Some(Duration::from_secs(30)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .user_agent(concat!("andante/", env!("CARGO_PKG_VERSION")))
        .build()
        .new_agent()
}

/// What the hub says of a file before it is fetched.
struct Facts {
    size: Option<u64>,
    /// Names the content: a transfer is only taken up again while this is the same.
    version: String,
    sha256: Option<String>,
}

/// An answer that another try will not change.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the hub answers {status} for {url}{hint}")]
    Status {
        status: StatusCode,
        url: String,
        hint: &'static str,
    },
    #[error("cannot write the model file")]
    Disk(#[source] io::Error),
}

struct Transfer<'a> {
    agent: Agent,
    url: String,
    token: Option<&'a str>,
}

impl Transfer<'_> {
    fn facts(&self) -> Result<Facts> {
        let mut request = self.agent.head(&self.url).config().max_redirects(0).build();
        if let Some(token) = self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = request
            .call()
            .with_context(|| format!("cannot reach {}", self.url))?;
        let status = answer.status();
        if !status.is_success() && !status.is_redirection() {
            return Err(self.refused(status).into());
        }
        let headers = answer.headers();
        let text = |name| header(headers, name);
        let version = text("x-linked-etag")
            .or_else(|| text("etag"))
            .unwrap_or_default();
        let version = version
            .trim_start_matches("W/")
            .trim_matches('"')
            .to_owned();
        // The hub names large files by their SHA-256 and small ones by their git blob id.
        let is_sha256 = version.len() == 64 && version.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = text("x-linked-size")
            .or_else(|| text("content-length").filter(|_| status.is_success()));
        Ok(Facts {
            size: size.and_then(|size| size.parse().ok()),
            sha256: is_sha256.then(|| version.to_ascii_lowercase()),
            version,
        })
    }

    /// Fetches what is missing of `part`; an error leaves what has come, to be taken up again.
    fn resume(&self, part: &Path, facts: &Facts, bar: &indicatif::ProgressBar) -> Result<()> {
        let version = version_file(part);
        let same = !facts.version.is_empty()
            && fs::read_to_string(&version).is_ok_and(|known| known == facts.version);
        let have = if same {
            fs::metadata(part).map_or(0, |data| data.len())
        } else {
            0
        };
        let have = if facts.size.is_some_and(|size| have > size) {
            0
        } else {
            have
        };
        if have > 0 && facts.size == Some(have) {
            return Ok(());
        }
        fs::write(&version, &facts.version).map_err(Refused::Disk)?;
        let mut request = self.agent.get(&self.url);
        if let Some(token) = self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if have > 0 {
            request = request.header("range", format!("bytes={have}-"));
        }
        let mut answer = request
            .call()
            .with_context(|| format!("cannot reach {}", self.url))?;
        let appends = match answer.status() {
            StatusCode::PARTIAL_CONTENT => true,
            StatusCode::OK => false,
            status => return Err(self.refused(status).into()),
        };
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .append(appends)
            .truncate(!appends)
            .open(part)
            .map_err(Refused::Disk)?;
        let start = if appends { have } else { 0 };
        bar.set_position(start);
        let received = copy(&mut answer.body_mut().as_reader(), &mut file, bar)?;
        match facts.size {
            Some(size) if start + received != size => {
                bail!(
                    "{} broke off after {} of {size} bytes",
                    self.url,
                    start + received
                )
            }
            _ => Ok(()),
        }
    }

    fn refused(&self, status: StatusCode) -> Refused {
        let hint = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                "; set HF_TOKEN to a token that may read it"
            }
            StatusCode::NOT_FOUND => "; check owner, repository and file name",
            _ => "",
        };
        Refused::Status {
            status,
            url: self.url.clone(),
            hint,
        }
    }
}

fn copy(from: &mut impl Read, to: &mut File, bar: &indicatif::ProgressBar) -> Result<u64> {
    let mut buffer = vec![0; 1 << 18];
    let mut total = 0;
    loop {
        let count = from.read(&mut buffer).context("the transfer broke off")?;
        if count == 0 {
            to.sync_all().map_err(Refused::Disk)?;
            return Ok(total);
        }
        to.write_all(&buffer[..count]).map_err(Refused::Disk)?;
        total += count as u64;
        bar.inc(count as u64);
    }
}

/// Beside a partial file: which content it is a part of.
fn version_file(part: &Path) -> PathBuf {
    part.with_extension("part-version")
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}
