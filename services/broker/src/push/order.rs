//! Parts of a push that run at the same time. Which error a person reads must not depend on which part fails first.

use super::error::PushError;

/// Runs two parts at the same time, and gives the value of `first` and the result of `second`. An error of `first` ends `second`. An error of
/// `second` ends nothing: the caller decides whether it counts.
///
/// Dropped midway: both parts are dropped.
pub(super) fn alongside<A, B>(
    first: impl Future<Output = Result<A, PushError>>,
    second: impl Future<Output = B>,
) -> impl Future<Output = Result<(A, B), PushError>> {
    // Boxed because the futures are large.
    let (first, second) = (Box::pin(first), Box::pin(second));
    async move { tokio::try_join!(first, async { Ok::<_, PushError>(second.await) }) }
}

/// Runs two parts at the same time, and gives the values of both. An error of `first` ends `second`, and wins over its error. An error of `second` ends
/// nothing, because `first` may still fail.
///
/// Dropped midway: both parts are dropped.
pub(super) fn in_order<A, B>(
    first: impl Future<Output = Result<A, PushError>>,
    second: impl Future<Output = Result<B, PushError>>,
) -> impl Future<Output = Result<(A, B), PushError>> {
    let both = alongside(first, second);
    async move {
        let (first, second) = both.await?;
        Ok((first, second?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test]
    async fn an_error_of_the_first_part_ends_the_second_and_wins_over_its_error() {
        let fail = || async {
            tokio::task::yield_now().await;
            Err::<(), _>(PushError::Busy)
        };
        assert_eq!(alongside(fail(), pending::<()>()).await, Err(PushError::Busy));
        let both = alongside(fail(), ready(Err::<(), _>(PushError::Failed))).await;
        assert_eq!(both, Err(PushError::Busy));
    }

    #[tokio::test]
    async fn an_error_of_the_second_part_is_given_to_the_caller() {
        let first = async {
            tokio::task::yield_now().await;
            Ok(1)
        };
        let both = alongside(first, ready(Err::<(), _>(PushError::Failed))).await;
        assert_eq!(both, Ok((1, Err(PushError::Failed))));
    }

    #[tokio::test]
    async fn the_error_of_the_first_of_two_parts_in_order_wins_whichever_comes_first() {
        let (early, late) = (PushError::Failed, PushError::Busy);
        let fail = |error: &PushError| {
            let error = error.clone();
            async move {
                tokio::task::yield_now().await;
                Err::<(), _>(error)
            }
        };
        let failed = || ready(Err::<(), _>(early.clone()));
        assert_eq!(in_order(fail(&late), failed()).await, Err(late.clone()));
        assert_eq!(in_order(failed(), fail(&late)).await, Err(early.clone()));
        assert_eq!(in_order(ready(Ok(1)), fail(&late)).await, Err(late.clone()));
        assert_eq!(in_order(ready(Ok(1)), ready(Ok(2))).await, Ok((1, 2)));
    }
}
