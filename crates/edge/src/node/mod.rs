//! The node that runs within the agent, as its own API server sees it: what a kubelet would be asked goes to it without a socket, and
//! `kubectl top` reads what it measures.

mod top;

use std::sync::Arc;

use node::Node;
use server::Server;
use tokio::io::DuplexStream;

pub use top::Top;

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
