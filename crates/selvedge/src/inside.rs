//! The API of this process for its own controllers: clients without a socket, each with an account of its own.

use std::sync::Arc;

use identity::User;
use kube::Client;
use server::Server;
use server::local::Local;

/// A client in somebody's name.
pub fn client(server: &Arc<Server>, user: User) -> Client {
    Client::new(Local::new(server, user), "default")
}

/// Clients by the names of accounts in `kube-system`; a name with a colon is a user's.
pub fn clients(server: &Arc<Server>) -> workloads::Clients {
    let server = server.clone();
    Arc::new(move |name| {
        let user = if name.contains(':') {
            User { name: name.to_owned(), groups: vec!["system:authenticated".to_owned()], ..User::default() }
        } else {
            User::controller(name)
        };
        client(&server, user)
    })
}
