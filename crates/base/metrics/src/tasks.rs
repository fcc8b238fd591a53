//! The process's tasks.

use crate::{Registry, Scrape};

impl Registry {
    /// Shows how many tasks of each name run, have panicked, and were restarted: see the crate for tasks.
    pub fn collect_tasks(&self) {
        self.collect(show);
    }
}

fn show(scrape: &mut Scrape<'_>) {
    let counts = tasks::counts();
    let mut running = scrape.gauge_family("selvedge_tasks", "Tasks that run, by name.", ["task"]);
    counts.iter().for_each(|count| running.set([count.name], count.running));
    let help = "Panics of tasks, by name.";
    let mut panics = scrape.counter_family("selvedge_task_panics_total", help, ["task"]);
    counts.iter().for_each(|count| panics.set([count.name], count.panics));
    let help = "Restarts of tasks after a panic or an error, by name.";
    let mut restarts = scrape.counter_family("selvedge_task_restarts_total", help, ["task"]);
    counts.iter().for_each(|count| restarts.set([count.name], count.restarts));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_are_shown_by_name() {
        let registry = Registry::new();
        registry.collect_tasks();
        let running = tasks::spawn_short("metrics-test", std::future::pending::<()>());
        assert!(tasks::spawn_short("metrics-test", async { panic!("shown") }).await.is_err());
        let text = registry.encode();
        for line in [
            "selvedge_tasks{task=\"metrics-test\"} 1",
            "selvedge_task_panics_total{task=\"metrics-test\"} 1",
            "selvedge_task_restarts_total{task=\"metrics-test\"} 0",
        ] {
            assert!(text.lines().any(|known| known == line), "no {line} in {text}");
        }
        running.abort();
    }
}
