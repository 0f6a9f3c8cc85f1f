-- What the caller sent with the idempotency key of a fork: another body under the same key is refused.
alter table session
    add column body_sha256 bytea;
