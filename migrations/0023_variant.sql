-- The variant (reasoning effort) that the last prompt of a session chose. Later prompts that choose none get it. An older gateway neither reads
-- nor writes the column: while both versions run, a prompt through the older one changes nothing here.
-- Only the catalogue changes. A long transaction makes the migration fail instead of stopping all others; it can be tried again.
set local lock_timeout = '5s';

alter table session add column variant text;

comment on column session.variant is
  'variant of prompts that choose none; null: the provider''s default; domain::conversation::message::VARIANTS';
