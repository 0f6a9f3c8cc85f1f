-- What a key may do: admin, member or viewer. Keys of older versions may do everything in their tenant.
-- Only the catalogue changes. A long transaction makes the migration fail instead of stopping all others; it can be tried again.
set local lock_timeout = '5s';

alter table api_key add column role text not null default 'admin';
