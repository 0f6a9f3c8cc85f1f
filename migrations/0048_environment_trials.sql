-- A session of an admin that works with the environment that its repository proposes, although nobody has allowed it: `flotilla env check --allow`. A
-- constant default adds the column without a rewrite, and programs of the last version leave it out.
alter table session add column tries_environment boolean not null default false;
