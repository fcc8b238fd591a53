//! The nodes of an edge as its own API server sees them. What a kubelet would be asked goes to the one within the agent without a socket, and
//! `kubectl top` reads what that one measures, or what kubelets do.

mod summary;
mod top;

use std::sync::Arc;

use node_api::Node;
use server::Server;
use tokio::io::DuplexStream;

pub use top::{Top, let_them_read};

struct Inside(Node);

impl server::onward::Node for Inside {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn connect(&self) -> Box<dyn server::onward::Io> {
        let stream: DuplexStream = self.0.connect();
        Box::new(stream)
    }
}

/// From now on this node answers. `top` is what was mounted on the server for it.
pub async fn answer(server: &Arc<Server>, top: &Top, node: Node) {
    server.kubelets.add_inside(Arc::new(Inside(node.clone())));
    top.answer(node);
    top::let_them_read(server).await;
}
