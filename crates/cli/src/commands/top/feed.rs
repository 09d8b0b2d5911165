//! What the server tells, read by a thread of its own.

use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use anyhow::{Context, Result, bail};

use super::picture::{Moments, Picture, State};
use crate::peer::{Peer, ServerEvent, events};

/// A connection to `/timeline/events`.
pub(super) struct Feed {
    base: String,
    events: Receiver<Result<ServerEvent>>,
}

impl Feed {
    pub(super) fn open(peer: &Peer) -> Result<Self> {
        let base = peer.base().to_owned();
        let stream = peer
            .get("/timeline/events")
            .context("the server does not say what it does")?;
        let (sender, receiver) = mpsc::sync_channel(256);
        thread::Builder::new()
            .name("timeline".into())
            .spawn(move || {
                for event in events(stream) {
                    if sender.send(event.context("the connection broke")).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            base,
            events: receiver,
        })
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Adds to the picture what has come; false when nothing more will.
    pub(super) fn take(&self, picture: &mut Picture) -> Result<bool> {
        loop {
            let event = match self.events.try_recv() {
                Ok(event) => event?,
                Err(TryRecvError::Empty) => return Ok(true),
                Err(TryRecvError::Disconnected) => return Ok(false),
            };
            let unknown = || format!("{} tells something unknown", self.base);
            match event.name.as_str() {
                "moments" => {
                    let moments: Moments =
                        serde_json::from_str(&event.data).with_context(unknown)?;
                    picture.add(moments);
                }
                "state" => {
                    let state: State = serde_json::from_str(&event.data).with_context(unknown)?;
                    picture.set(state);
                }
                "error" => bail!("{}", event.data),
                _ => {}
            }
        }
    }
}
