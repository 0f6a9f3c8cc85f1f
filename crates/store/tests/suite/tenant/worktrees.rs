//! Worktrees, and the sessions that begin in them.

use crate::{family::permission, world::World};
use domain::{
    ids::{SessionId, TenantId, Timestamp, WorktreeId},
    session::Source,
};
use store::{
    Page,
    error::{Entity, Error},
    log::{feed::Window, record::Progress},
    people::requests::RequestScope,
    session::{
        creation::NewSession,
        forks::NewFork,
        sessions::{Filter, Patch},
        tree::children::Dispatch,
    },
    tenant::worktrees::{SessionArea, Worktree, WorktreeCreation},
};
use testkit::sample::NOW;

fn worktree(world: &mut World, name: &str) -> Worktree {
    Worktree {
        id: WorktreeId::make(&mut world.sample.ids, NOW),
        project: world.project.clone(),
        name: name.to_owned(),
        directory: format!("sample.worktrees/{name}"),
        branch: format!("opencode/{name}"),
    }
}

async fn create(world: &World, tenant: TenantId, new: &Worktree) -> WorktreeCreation {
    world.store.create_worktree(tenant, new, 2).await.unwrap()
}

#[tokio::test]
async fn a_project_has_a_bounded_number_of_worktrees_with_directories_of_their_own() {
    let mut world = World::new().await;
    let tenant = world.tenant;
    let [fix, same, other, third] = ["fix", "fix", "other", "third"].map(|name| worktree(&mut world, name));
    assert_eq!(create(&world, tenant, &fix).await, WorktreeCreation::Created);
    assert_eq!(create(&world, tenant, &same).await, WorktreeCreation::DirectoryTaken);
    let of_project = Worktree { directory: "sample".to_owned(), ..other.clone() };
    assert_eq!(create(&world, tenant, &of_project).await, WorktreeCreation::DirectoryTaken);
    world.store.add_project_places(tenant, &world.project, &["/home/me/app".to_owned()]).await.unwrap();
    let of_place = Worktree { directory: "/home/me/app".to_owned(), ..other.clone() };
    assert_eq!(create(&world, tenant, &of_place).await, WorktreeCreation::DirectoryTaken);
    assert_eq!(create(&world, tenant, &other).await, WorktreeCreation::Created);
    assert_eq!(create(&world, tenant, &third).await, WorktreeCreation::TooMany);
    let project = world.store.get_project(tenant, &world.project).await.unwrap();
    assert_eq!(project.worktrees, ["sample.worktrees/fix", "sample.worktrees/other"]);
    assert_eq!(world.store.find_project(tenant, &fix.directory).await.unwrap(), Some(project));
    assert_eq!(world.store.find_worktree(tenant, &fix.directory).await.unwrap(), Some(fix.clone()));
    assert_eq!(world.store.find_worktree(tenant, &third.directory).await.unwrap(), None);
    let list = async |tenant, most| world.store.list_worktrees(tenant, &world.project, most).await.unwrap();
    let mut listed = list(tenant, 2).await;
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(listed, [fix.clone(), other.clone()]);
    assert_eq!(list(tenant, 1).await.len(), 1);

    let stranger = world.sample.tenant();
    world.store.create_tenant(stranger, "second").await.unwrap();
    let foreign = world.store.create_worktree(stranger, &third, 2).await;
    assert!(matches!(foreign, Err(Error::NotFound(Entity::Project))), "{foreign:?}");
    assert_eq!(world.store.find_worktree(stranger, &fix.directory).await.unwrap(), None);
    assert!(list(stranger, 2).await.is_empty());
    assert!(!world.store.delete_worktree(stranger, &fix).await.unwrap());
    assert!(!world.store.reset_worktree(stranger, &fix.id, &third).await.unwrap());
    assert!(world.store.delete_worktree(tenant, &fix).await.unwrap());
    assert!(!world.store.delete_worktree(tenant, &fix).await.unwrap(), "it is gone");
    assert!(!world.store.reset_worktree(tenant, &fix.id, &third).await.unwrap());
    assert_eq!(create(&world, tenant, &third).await, WorktreeCreation::Created);
}

#[tokio::test]
async fn the_directory_of_a_worktree_means_no_other_project() {
    let mut world = World::new().await;
    let (tenant, fix, elsewhere) = (world.tenant, worktree(&mut world, "fix"), world.sample.project());
    assert_eq!(create(&world, tenant, &fix).await, WorktreeCreation::Created);
    let refused = world.store.create_project(tenant, &elsewhere, &fix.directory, &Source::default()).await;
    assert!(matches!(refused, Err(Error::NotFound(Entity::Project))), "{refused:?}");
    world.store.create_project(tenant, &elsewhere, "elsewhere", &Source::default()).await.unwrap();
    let places = [fix.directory.clone(), "/home/me/elsewhere".to_owned()];
    world.store.add_project_places(tenant, &elsewhere, &places).await.unwrap();
    let found =
        async |directory: &str| world.store.find_project(tenant, directory).await.unwrap().unwrap().id;
    assert_eq!(found("/home/me/elsewhere").await, elsewhere, "the other place is its own");
    assert_eq!(found(&fix.directory).await, world.project);
    assert!(world.store.delete_worktree(tenant, &fix).await.unwrap());
    let free = world.store.find_project(tenant, &fix.directory).await.unwrap();
    assert_eq!(free, None, "it was skipped as a place");
    world.store.add_project_places(tenant, &elsewhere, &places).await.unwrap();
    assert_eq!(found(&fix.directory).await, elsewhere);

    // Both at the same moment: neither sees the other one.
    let Worktree { id, project, name, directory, branch } = &fix;
    let insert = format!(
        "insert into worktree (tenant_id, project_id, id, name, directory, branch)
         values ('{tenant}', '{project}', '{id}', '{name}', '{directory}', '{branch}')"
    );
    world.sql(&insert).await;
    assert_eq!(found(&fix.directory).await, world.project, "a worktree goes before a place");
}

/// Lists the sessions of a worktree, in the order of their ids.
async fn sessions(world: &World, area: &SessionArea) -> Vec<SessionId> {
    let filter = Filter::from(area.clone());
    let found = world.store.list_sessions(world.tenant, &filter, &Page::default()).await.unwrap();
    let mut ids: Vec<SessionId> = found.into_iter().map(|session| session.info.id).collect();
    ids.sort();
    ids
}

fn sorted<const N: usize>(ids: [&SessionId; N]) -> Vec<SessionId> {
    let mut ids: Vec<SessionId> = ids.into_iter().cloned().collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn sessions_forks_and_subtasks_belong_to_a_worktree_until_it_begins_anew() {
    let mut world = World::new().await;
    let (tenant, fix) = (world.tenant, worktree(&mut world, "fix"));
    assert_eq!(create(&world, tenant, &fix).await, WorktreeCreation::Created);
    let new = NewSession { worktree_id: Some(fix.id.clone()), ..world.new_session() };
    let (root, event) = (new.id.clone(), world.sample.event());
    world.store.create_session(tenant, &new, &event, NOW).await.unwrap();
    let outside = world.session().await;
    let (copy, event) = (world.new_session(), world.sample.event());
    let fork = NewFork { origin: &root, session: &copy, event_id: &event, before_seq: 1 };
    world.store.fork_session(tenant, fork, &mut |_| vec![], NOW).await.unwrap();
    world.accept(&root, "begin").await;
    let mut actor = world.take_as_actor(&root).await;
    let (call, changes) = world.call(&root);
    let child = world.new_child(&call);
    world.store.dispatch_child(&actor.next(), &changes, &child, Dispatch::New, NOW).await.unwrap();
    let below = &child.prompt.session_id;
    let (_, changes) = world.request(&root, permission());
    world.store.append(&actor.next(), &changes, 0, Progress::None, NOW).await.unwrap();

    let area = SessionArea { project: fix.project.clone(), worktree: Some(fix.id.clone()) };
    assert_eq!(sessions(&world, &area).await, sorted([&root, &copy.id, below]));
    let whole = SessionArea::from(fix.project.clone());
    assert_eq!(sessions(&world, &whole).await, sorted([&root, &copy.id, below, &outside]));
    let of = async |area: &SessionArea| {
        let found = world.store.find_sessions(tenant, area, &[root.clone(), outside.clone()]).await.unwrap();
        let mut ids: Vec<SessionId> = found.into_iter().map(|session| session.info.id).collect();
        ids.sort();
        ids
    };
    assert_eq!((of(&area).await, of(&whole).await), (vec![root.clone()], sorted([&root, &outside])));
    let window = Window { since: Some(Timestamp(0)), limit: 10 };
    assert_eq!(world.store.list_recent(tenant, Some(&area), window).await.unwrap().len(), 3);
    assert_eq!(world.store.list_recent(tenant, Some(&whole), window).await.unwrap().len(), 4);
    let requests = async |area: &SessionArea| {
        let page = Page::default();
        world.store.list_requests(tenant, RequestScope::Area(area), "per", &page).await.unwrap().len()
    };
    let other = SessionArea { worktree: Some(worktree_id("wtr_other")), ..whole.clone() };
    assert_eq!((requests(&area).await, requests(&whole).await, requests(&other).await), (1, 1, 0));
    let directory = async |id: &SessionId| world.store.get_session(tenant, id).await.unwrap().directory;
    assert_eq!(directory(below).await, fix.directory);
    assert_eq!(directory(&outside).await, "sample");
    let written = world.store.list_written(tenant, 0).await.unwrap().1;
    let of_feed =
        |id: &SessionId| written.iter().find(|entry| entry.session == *id).unwrap().directory.clone();
    assert_eq!((of_feed(&root), of_feed(&outside)), (fix.directory.clone(), "sample".to_owned()));
    let deletion = world.store.delete_session(tenant, &copy.id).await.unwrap();
    assert_eq!(deletion.tombstones[0].directory, fix.directory);

    let anew = Worktree { id: worktree_id("wtr_anew"), branch: "opencode/fix-2".to_owned(), ..fix.clone() };
    assert!(world.store.reset_worktree(tenant, &fix.id, &anew).await.unwrap());
    assert_eq!(world.store.find_worktree(tenant, &fix.directory).await.unwrap(), Some(anew));
    assert_eq!(directory(&root).await, "sample", "it belongs to the project alone");
    let renamed = Patch { title: Some("Renamed".to_owned()), ..Patch::default() };
    let event = world.sample.event();
    world.store.update_session(tenant, &root, &renamed, &event, NOW).await.unwrap();
    assert_eq!(world.store.list_deleted(tenant, 0).await.unwrap()[0].directory, fix.directory);
}

fn worktree_id(text: &str) -> WorktreeId {
    text.parse().unwrap()
}
