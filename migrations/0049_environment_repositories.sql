-- Which repository proposed an environment: "example.com/me/app", the same for all its URLs. null: unknown, or its scripts would get secrets, which belong to a
-- project. A decision counts in all projects of the tenant with the same repository. Older rows stay without one.
alter table proposed_environment add column repository text collate "C";
-- Partial, as those of migration 44: no look-up by project and digest repeats the condition, so none takes the index.
create index proposed_environment_digest on proposed_environment (tenant_id, digest) where proposed_at > '-infinity';
