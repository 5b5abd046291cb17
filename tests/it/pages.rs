//! The pages for people, as people meet them: in a real Chromium that reaches nothing but the gateway, with scripts and
//! without; and as attackers meet them, byte by byte.

mod album;
mod browser;
mod forgery;
mod groups;
mod harness;
mod hostile;
mod keyboard;
mod limits;
mod members;
mod people;
mod seed;
mod sessions;
mod visitor;
mod walk;
