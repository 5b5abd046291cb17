//! A mail server that follows a script: it wants a sign-in, and can refuse the first messages.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::kit::{LoopbackPort, eventually};

const USER: &str = "imagate";
pub(super) const PASSWORD: &str = "canary-of-the-mail-server";

#[derive(Default)]
struct MailServerState {
    mails: Vec<String>,
    refused: usize,
    signed_in: bool,
}

/// The server. Dropping it closes the port.
pub(super) struct MailServer {
    port: LoopbackPort,
    mailbox: Arc<Mutex<MailServerState>>,
}

impl MailServer {
    /// Refuses this number of messages for now, and accepts all others.
    pub(super) fn start(refuses: usize) -> Self {
        let mailbox = Arc::<Mutex<MailServerState>>::default();
        let received = Arc::clone(&mailbox);
        Self { port: LoopbackPort::serve(move |stream| serve(stream, refuses, &received)), mailbox }
    }

    pub(super) fn settings(&self) -> String {
        format!(
            "[alerts.email]\nhost = \"127.0.0.1\"\nport = {}\ntls = \"none\"\nuser = \"{USER}\"\n\
             password = {{ env = \"IT_SMTP\" }}\nfrom = \"imagate <imagate@example.com>\"\n\
             to = [\"ops@example.com\", \"two@example.com\"]\n",
            self.port.address().port()
        )
    }

    /// Waits for this number of messages, and returns all.
    #[track_caller]
    pub(super) fn wait_for(&self, count: usize) -> Vec<String> {
        eventually("the mails arrive", || {
            let mails = self.mailbox.lock().expect("the mails").mails.clone();
            (mails.len() >= count).then_some(mails)
        })
    }

    pub(super) fn has_signed_in(&self) -> bool {
        self.mailbox.lock().expect("the mails").signed_in
    }
}

fn serve(stream: TcpStream, refuses: usize, mailbox: &Mutex<MailServerState>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let credentials = STANDARD.encode(format!("\0{USER}\0{PASSWORD}"));
    reader.get_mut().write_all(b"220 mail.example ready\r\n")?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let word = line.split_whitespace().next().unwrap_or_default().to_ascii_uppercase();
        let answer = match word.as_str() {
            "EHLO" => "250-mail.example\r\n250-8BITMIME\r\n250 AUTH PLAIN",
            "AUTH" if line.trim().ends_with(&credentials) => {
                mailbox.lock().expect("the mails").signed_in = true;
                "235 welcome"
            }
            "AUTH" => "535 wrong",
            "DATA" => {
                reader.get_mut().write_all(b"354 go on\r\n")?;
                let mail = read_mail(&mut reader)?;
                let mut mailbox = mailbox.lock().expect("the mails");
                if mailbox.refused < refuses {
                    mailbox.refused += 1;
                    "451 try again later"
                } else {
                    mailbox.mails.push(mail);
                    "250 taken"
                }
            }
            "QUIT" => "221 bye",
            _ => "250 ok",
        };
        reader.get_mut().write_all(format!("{answer}\r\n").as_bytes())?;
    }
}

fn read_mail(reader: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut mail = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == ".\r\n" {
            return Ok(mail);
        }
        mail.push_str(&line);
    }
}
