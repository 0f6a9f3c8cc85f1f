-- Clients that name no directory get the only project of their tenant that has files.
create index project_with_files on project (tenant_id, name) where source ->> 'from' <> 'empty';
