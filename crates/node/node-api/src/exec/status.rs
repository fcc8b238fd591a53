//! How a command ended, as clients are told. Pure.

use serde_json::json;

/// The last that is said: a Status, or words for clients that know none. `outcome` is the exit code, if that is known, or why the command did
/// not run at all.
pub fn text(outcome: &Result<Option<i32>, String>, is_exec: bool, has_status: bool) -> String {
    let what = if is_exec { "executing command in" } else { "attaching to" };
    let (words, status) = match outcome {
        // Whoever is attached is told that it is over; how it ended is in the pod's status.
        Ok(Some(0)) => (String::new(), json!({"metadata": {}, "status": "Success"})),
        Ok(_) if !is_exec => (String::new(), json!({"metadata": {}, "status": "Success"})),
        Ok(Some(code)) => {
            let words = format!("command terminated with non-zero exit code: exit status {code}");
            let cause = json!({"reason": "ExitCode", "message": code.to_string()});
            let status = json!({"metadata": {}, "status": "Failure", "message": words, "reason": "NonZeroExitCode",
                "details": {"causes": [cause]}});
            (words, status)
        }
        Ok(None) => failed(format!("error {what} container: how it ended is not known")),
        Err(why) => failed(format!("error {what} container: {why}")),
    };
    if has_status { status.to_string() } else { words }
}

fn failed(words: String) -> (String, serde_json::Value) {
    let message = format!("Internal error occurred: {words}");
    let status = json!({"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError",
        "details": {"causes": [{"message": words}]}, "code": 500});
    (words, status)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn ends_of_commands() {
        let status = |outcome, is_exec| serde_json::from_str::<Value>(&text(&outcome, is_exec, true)).unwrap();
        assert_eq!(status(Ok(Some(0)), true), json!({"metadata": {}, "status": "Success"}));
        let failed = status(Ok(Some(7)), true);
        assert_eq!(failed["details"]["causes"][0], json!({"reason": "ExitCode", "message": "7"}));
        assert_eq!(failed["reason"], "NonZeroExitCode");
        assert_eq!(status(Ok(Some(7)), false)["status"], "Success", "attached: the pod's status says how it ended");
        let never = status(Err("no such program".into()), true);
        assert_eq!(never["message"], "Internal error occurred: error executing command in container: no such program");
        assert_eq!(never["code"], 500);
        assert_eq!(status(Ok(None), true)["status"], "Failure");
        assert_eq!(text(&Ok(Some(0)), true, false), "");
        assert!(text(&Ok(Some(7)), true, false).ends_with("exit status 7"));
    }
}
