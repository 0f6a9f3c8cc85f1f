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
}
