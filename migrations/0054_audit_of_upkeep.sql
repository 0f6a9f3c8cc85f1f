-- The upkeep of tombstones raises the floor of a tenant's epochs. That is no change of the tenant: the audit leaves it out.

drop trigger audit_update on tenant;
create trigger audit_update after update on tenant for each row
  when (to_jsonb(old) - 'epoch_floor' is distinct from to_jsonb(new) - 'epoch_floor')
  execute function audit_change('tenant', 'id', 'name');
