-- Where a loop begins to read a long conversation: the wishes for a summary are few among many parts.
create index part_compaction on part (tenant_id, session_id, seq) where kind = 'compaction';
