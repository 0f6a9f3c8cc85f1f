//! Fills all tables, so that Postgres plans for a large tenant among many small ones.

use sqlx::{AssertSqlSafe, PgConnection};

/// The large tenant. Its id is the last one, so that no join ends early.
pub(super) const TENANT: &str = "f1234567-89ab-cdef-0123-456789abcdef";

/// Inserts rows into every table of tenants, and into that of deliveries, which have none: `:sessions` into those that grow with the sessions of the large tenant, and a tenth into all others.
/// The values follow from the type of a column, apart from those at the top. A table that a migration adds is filled as well.
const GROWTH: &str = r#"
do $$
declare
  values_of jsonb := jsonb_build_object(
    'phase', 'case when n % 2500 = 0 then n / 2500 % 4 + 1 else 0 end',
    'queued_at', 'case when n % 2500 = 0 then now() end',
    'wake_at', 'case when n % 10000 = 5000 then now() end',
    'project_id', 'to_char(n % 20, ''fm000000'')',
    'scope', 'to_char(n % 20, ''fm000000'')',
    'job.state', '''{}''::json',
    'forge_delivery.state', '1',
    'session.parent_id', 'case when n % 10 = 0 then to_char(n - 1, ''fm000000'') end',
    'session.root_id', 'case when n % 10 = 0 then to_char(n - 1, ''fm000000'') end',
    'audit.tenant_id', ''':tenant''',
    'dedupe', 'to_char(n, ''fm000000'')',
    'answer', 'case when n % 1000 > 0 then ''{}''::json end',
    'updated_at', 'now() - n * interval ''1 minute''',
    'xid', 'pg_current_xact_id()',
    'complete', 'true',
    'state', '''done''',
    'purpose', '''step''',
    'outcome', '''finished''');
  of_small_tenants text[] := array['api_key', 'approval', 'bundle', 'bundle_piece', 'forge_installation', 'project', 'project_place', 'proposed_environment', 'secret',
                                   'secret_counter', 'settings', 'tenant_layer'];
  for_a_while text[] := array['node_removal', 'part_chunk', 'row_removal'];
  target record;
begin
  -- Foreign keys are not checked meanwhile.
  set local session_replication_role = replica;
  insert into tenant (id, name, running_max)
  select md5(n::text)::uuid, n::text, 4 from generate_series(0, :sessions / 100) n
  union all select ':tenant', 'large', 4;
  for target in
    select t.relname as name, string_agg(quote_ident(a.attname), ', ') as columns,
           string_agg(coalesce(values_of ->> (t.relname || '.' || a.attname), values_of ->> a.attname::text,
             case a.atttypid::regtype::text
               when 'uuid' then case when t.relname = any(of_small_tenants) then 'md5((n % 1000)::text)::uuid' else ''':tenant''' end
               when 'text' then 'to_char(n, ''fm000000'')'
               when 'text[]' then '''{}'''
               when 'bytea' then 'convert_to(n::text, ''utf8'')'
               when 'json' then '''{}'''
               when 'jsonb' then '''{}'''
               when 'timestamp with time zone' then 'now()'
               else 'n' end), ', ') as expressions,
           (t.relname = 'session' or bool_or(a.attname = 'session_id')) and t.relname <> all(of_small_tenants || for_a_while) as is_large
      from pg_class t join pg_attribute a on a.attrelid = t.oid
     where t.relnamespace = 'public'::regnamespace and t.relkind = 'r' and a.attnum > 0 and not a.attisdropped and a.attidentity = ''
       and (exists (select 1 from pg_attribute o where o.attrelid = t.oid and o.attname = 'tenant_id') or t.relname = 'forge_delivery')
       and (a.attnotnull and not a.atthasdef or values_of ? a.attname::text or values_of ? (t.relname || '.' || a.attname))
     group by t.relname
  loop
    execute format('insert into %I (%s) select %s from generate_series(1, %s) n on conflict do nothing',
                   target.name, target.columns, target.expressions, case when target.is_large then :sessions else :sessions / 10 end);
  end loop;
end $$"#;

/// Fills a new database. The large tenant gets this number of sessions.
pub(super) async fn grow(connection: &mut PgConnection, sessions: u32) {
    let sql = GROWTH.replace(":sessions", &sessions.to_string()).replace(":tenant", TENANT);
    // A busy machine takes longer than the servers of tests allow a statement.
    sqlx::raw_sql("set statement_timeout = '120s'").execute(&mut *connection).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.unwrap();
}
