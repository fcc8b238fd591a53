//! `selvedge up`: everything on this machine, and what to try next.

use anyhow::Result;

use crate::{center, cli::say, config::Config};

pub fn run(config: &Config) -> Result<()> {
    center::log_as(&config.log)?;
    center::runtime()?.block_on(async {
        let running = center::start(config).await?;
        let kubeconfig = config.data_dir.join("admin.kubeconfig");
        say(&format!(
            "\n  The API is ready at https://{address}\n\
             \n  export KUBECONFIG={kubeconfig}\n\
             \n  kubectl get namespaces\
             \n  kubectl create deployment web --image=nginx --replicas=3\
             \n  kubectl get deployments --watch\n\
             \n  Everything is kept in {data}. Ctrl-C stops it; start it again and it is all there.\n\n",
            address = running.address,
            kubeconfig = std::path::absolute(&kubeconfig)?.display(),
            data = config.data_dir.display(),
        ))?;
        center::until_told_to_stop().await?;
        say("\n  Stopping: finishing requests and ending watches.\n")?;
        running.stop().await;
        Ok(())
    })
}
