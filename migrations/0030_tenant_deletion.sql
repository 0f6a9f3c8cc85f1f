-- When an operator deleted a tenant. Its keys are refused from then on; workers remove its rows in batches, and at last the tenant itself.
-- Only the catalogue changes. A long transaction makes the migration fail instead of stopping all others; it can be tried again.
set local lock_timeout = '5s';

alter table tenant add column deleted_at timestamptz;
-- Removes the entries of a deleted tenant in batches; no other statement deletes any.
grant delete on ledger to flotilla_system;
