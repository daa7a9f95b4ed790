//! The programs that are connected to the port.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use actors::model::SessionName;
use tokio::sync::mpsc;

use super::{
    client::{Client, Command},
    wire::ClientKey,
};
use api::auth::Identity;

/// The programs by their ids. It stays on one thread.
pub struct Programs {
    clients: RefCell<BTreeMap<ClientKey, Rc<Client>>>,
    /// The name of the person at the consoles.
    pub human: SessionName,
    /// A program that takes no bytes for this long is lost.
    pub stall_timeout: Duration,
}

impl Programs {
    /// No programs yet.
    pub fn new(human: SessionName, stall_timeout: Duration) -> Rc<Self> {
        Rc::new(Self {
            clients: RefCell::default(),
            human,
            stall_timeout,
        })
    }

    /// Adds a connection of the program of this id. With its first connection a program begins, and the caller carries out
    /// what it asks.
    pub fn enter(
        &self,
        key: ClientKey,
        identity: &Arc<Identity>,
        link: u64,
    ) -> (Rc<Client>, Option<mpsc::Receiver<Command>>) {
        let mut clients = self.clients.borrow_mut();
        if let Some(client) = clients.get(&key) {
            client.output.enter(link);
            return (Rc::clone(client), None);
        }
        let (client, commands) = Client::new(key.clone(), Arc::clone(identity));
        client.output.enter(link);
        clients.insert(key, Rc::clone(&client));
        (client, Some(commands))
    }

    /// Forgets a program whose last connection has closed.
    pub fn leave(&self, client: &Client) {
        if client.output.is_gone() {
            self.clients.borrow_mut().remove(&client.key);
        }
    }

    /// Whether a program of this id is connected.
    pub fn is_connected(&self, key: &ClientKey) -> bool {
        self.clients.borrow().contains_key(key)
    }
}
