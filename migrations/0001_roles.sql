-- The two roles that our services log in with; the owner of the tables is the migrator, whoever runs this.
-- flotilla_app sees one tenant at a time; flotilla_system passes row-level security for the few listed queries
-- that cross tenants. Roles belong to the whole cluster, so another database may have made them, even just now.
do $$
begin
  create role flotilla_app nologin;
exception when duplicate_object or unique_violation then null;
end $$;
do $$
begin
  create role flotilla_system nologin bypassrls;
exception when duplicate_object or unique_violation then null;
end $$;
grant usage on schema public to flotilla_app, flotilla_system;
