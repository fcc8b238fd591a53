//! What `selvedge up` says.

use std::path::Path;

use anyhow::Result;

/// Longer lines are cut on the terminal; the log has them whole.
const WIDTH: usize = 160;

/// Whether an edge has joined before: then it needs no token.
pub fn joined(directory: &Path) -> bool {
    directory.join("edge.json").exists()
}

/// A line of a log without the time and without INFO.
pub fn plain(line: &str) -> &str {
    let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
    let stamped = first.len() > 19 && first.ends_with('Z') && first.as_bytes().first().is_some_and(u8::is_ascii_digit);
    let text = if stamped { rest } else { line }.trim();
    text.strip_prefix("INFO ").unwrap_or(text).trim_start()
}

/// As it stands on the terminal: not too long.
pub fn short(text: &str) -> String {
    match text.char_indices().nth(WIDTH) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Everything runs: where it is, and what to try.
pub fn ready(data: &Path, url: &str, edges: &[&str]) -> Result<String> {
    let shown = data.display();
    let kept = format!("Everything is kept in {shown}. Ctrl-C stops it; start it again and it is all there.");
    let Some(first) = edges.first() else {
        return Ok(format!(
            "\
\n  The center is ready at {url}\n\
\n  export KUBECONFIG={shown}/center/admin.kubeconfig\
\n  kubectl get namespaces\
\n  kubectl create deployment web --image=nginx --replicas=3\
\n  kubectl get deployments --watch\n\
\n  {kept}\n\n"
        ));
    };
    let selvedge = std::env::current_exe()?;
    Ok(format!(
        "\
\n  The center is ready at {url}, with {count}: {edges}.\
\n  What is in the workspace root:shop comes to every edge but the cloud.\
\n  The first example runs: docs/tutorials/first-example.md.\n\
\n  alias selvedge={selvedge}\
\n  export KUBECONFIG={shown}/shop.kubeconfig\
\n  kubectl create configmap offer --from-literal=price=4\
\n  selvedge status\
\n  kubectl --kubeconfig {shown}/{first}/admin.kubeconfig get configmaps\
\n  kubectl --kubeconfig {shown}/{first}/admin.kubeconfig get pods --all-namespaces -o wide\n\
\n  Cut the link and see that {first} still answers, and catches up afterwards:\n\
\n  selvedge link cut {first}\
\n  kubectl create configmap later --from-literal=price=5\
\n  kubectl --kubeconfig {shown}/{first}/admin.kubeconfig get configmap offer\
\n  selvedge link heal {first}\
\n  selvedge status\n\
\n  The center's administrator is {shown}/center/admin.kubeconfig. Logs are {shown}/*.log.\
\n  {kept}\n\n",
        count = if edges.len() == 1 { "one edge".to_owned() } else { format!("{} edges", edges.len()) },
        edges = edges.join(", "),
        selvedge = selvedge.display(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_log() {
        for (line, shown) in [
            ("2026-11-16T02:59:30.123456Z  INFO the API is ready address=1", "the API is ready address=1"),
            ("2026-11-16T02:59:30.123456Z  WARN slow disk", "WARN slow disk"),
            ("selvedge: the port is taken", "selvedge: the port is taken"),
            ("", ""),
        ] {
            assert_eq!(plain(line), shown);
        }
        assert_eq!(short(&"ä".repeat(200)).chars().count(), WIDTH + 1);
    }
}
