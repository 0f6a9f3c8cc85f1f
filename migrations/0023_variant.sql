-- The variant (reasoning effort) that the last prompt of a session named. Later prompts that name none use it. Earlier versions neither read
-- nor write the column: their prompts use the provider's default, as before.
alter table session add column variant text;

comment on column session.variant is
  'variant of prompts that name none; null: the provider''s default; domain::conversation::message::VARIANTS';
