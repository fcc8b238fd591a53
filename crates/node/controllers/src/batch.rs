//! Many writes at once.

use futures::future::join_all;

use crate::error::Error;

/// Does something `count` times: once, then twice at the same time, then four times, until something fails. So a
/// quota that refuses everything is asked once and not a hundred times.
pub async fn slow_start<F>(count: usize, mut one: impl FnMut(usize) -> F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let (mut begun, mut batch) = (0, 1);
    while begun < count {
        let size = batch.min(count - begun);
        let results = join_all((begun..begun + size).map(&mut one)).await;
        results.into_iter().collect::<Result<(), Error>>()?;
        begun += size;
        batch *= 2;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_fails_is_not_tried_a_hundred_times() {
        let mut tried = 0;
        let all = slow_start(100, |_| {
            tried += 1;
            async { Ok(()) }
        });
        assert!(all.await.is_ok());
        assert_eq!(tried, 100);
        let mut tried = 0;
        let none = slow_start(100, |n| {
            tried += 1;
            async move { if n < 3 { Ok(()) } else { Err(Error::Unusable("full".into())) } }
        });
        assert!(none.await.is_err());
        assert_eq!(tried, 1 + 2 + 4);
    }
}
