//! Projects: created once for each name.

use crate::world::World;
use domain::{
    project::{Commands, Icon, ProjectDisplay},
    session::{Origin, Source},
};
use futures::future::join_all;
use store::{
    Page,
    error::{Entity, Error},
    tenant::projects::{Deletable, ProjectCreation, ProjectDeletion, Surroundings},
};

#[tokio::test]
async fn a_project_is_created_once_for_each_name() {
    let mut world = World::new().await;
    let (id, again) = (world.sample.project(), world.sample.project());
    let source = Source {
        origin: Origin::GitUrl("https://example.org/a.git".to_owned()),
        revision: Some("main".to_owned()),
        branch: Some("opencode/new".to_owned()),
        uncommitted: false,
        lfs: None,
        remote: Some("https://example.org/fork.git".to_owned()),
        install: None,
    };
    let creation = world.store.create_project(world.tenant, &id, "app", &source).await.unwrap();
    assert!(creation.is_new);
    let project = creation.project;
    assert_eq!((&project.id, project.name.as_str(), &project.source), (&id, "app", &source));
    let same = world.store.create_project(world.tenant, &again, "app", &Source::default()).await.unwrap();
    assert_eq!(same, ProjectCreation { project: project.clone(), is_new: false }, "the first one, unchanged");
    assert_eq!(world.store.get_project(world.tenant, &id).await.unwrap(), project);
    assert!(matches!(
        world.store.get_project(world.tenant, &again).await,
        Err(Error::NotFound(Entity::Project))
    ));
}

#[tokio::test]
async fn calls_at_the_same_moment_create_one_project() {
    let mut world = World::new().await;
    let (store, tenant) = (world.store.clone(), world.tenant);
    let (id, source) = (world.sample.project(), Source::default());
    let calls = (0..4).map(|_| store.create_project(tenant, &id, "app", &source));
    let creations: Vec<_> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(creations.iter().filter(|creation| creation.is_new).count(), 1);
    assert!(creations.iter().all(|creation| creation.project == creations[0].project));
    // At the wrong moment, a call meets the id of the other before its name. This is how that looks to Postgres.
    let other_name = store.create_project(tenant, &id, "other", &source).await;
    assert!(matches!(other_name, Err(Error::NotFound(Entity::Project))), "{other_name:?}");
}

#[tokio::test]
async fn projects_are_listed_in_pages_and_by_tenant() {
    let mut world = World::new().await;
    let other = world.sample.tenant();
    world.store.create_tenant(other, "second").await.unwrap();
    for (tenant, name) in [(world.tenant, "zebra"), (world.tenant, "app"), (other, "app")] {
        let id = world.sample.project();
        world.store.create_project(tenant, &id, name, &Source::default()).await.unwrap();
    }
    let names = |projects: Vec<store::tenant::projects::Project>| {
        projects.into_iter().map(|p| p.name).collect::<Vec<_>>()
    };
    let page = world.store.list_projects(world.tenant, &Page { limit: 2, cursor: None }).await.unwrap();
    assert_eq!(names(page), ["app", "sample"]);
    let page = Page { limit: 2, cursor: Some("sample".to_owned()) };
    assert_eq!(names(world.store.list_projects(world.tenant, &page).await.unwrap()), ["zebra"]);
    assert_eq!(names(world.store.list_projects(other, &Page::default()).await.unwrap()), ["app"]);
}

fn source() -> Source {
    Source { origin: Origin::GitUrl("https://example.org/a.git".to_owned()), ..Source::default() }
}

#[tokio::test]
async fn the_only_project_with_files_is_found() {
    let mut world = World::new().await;
    let (store, tenant, other) = (world.store.clone(), world.tenant, world.sample.tenant());
    store.create_tenant(other, "second").await.unwrap();
    let only = async || store.find_only_project_with_files(tenant).await.unwrap();
    assert_eq!(only().await, None, "the one of the sample has none");
    for (name, want) in [("app", Some("app")), ("other", None)] {
        store.create_project(tenant, &world.sample.project(), name, &source()).await.unwrap();
        assert_eq!(only().await.as_deref(), want, "{name}");
    }
    assert_eq!(store.find_only_project_with_files(other).await.unwrap(), None);
}

#[tokio::test]
async fn a_project_is_found_by_what_is_around_a_directory() {
    let mut world = World::new().await;
    let (store, tenant, other) = (world.store.clone(), world.tenant, world.sample.tenant());
    store.create_tenant(other, "second").await.unwrap();
    for (name, files) in [("app", source()), ("/src/named", source()), ("/src/empty", Source::default())] {
        let id = world.sample.project();
        store.create_project(tenant, &id, name, &files).await.unwrap();
        if name == "app" {
            store.add_project_places(tenant, &id, &["/src".to_owned(), "/src/app".to_owned()]).await.unwrap();
        }
    }
    let found = async |tenant, above: &[&str], listed: &str| {
        let above = above.iter().map(|&directory| directory.to_owned()).collect();
        let surroundings = Surroundings { above, listed: listed.to_owned() };
        let found = store.find_project_around(tenant, &surroundings).await.unwrap();
        found.map(|found| (found.project.name, found.directory))
    };
    let named = |name: &str, directory: &str| Some((name.to_owned(), directory.to_owned()));
    for (above, listed, want) in [
        (&["/src", "/src/app", "/src/app/lib"][..], "x", named("app", "/src/app")),
        (&["/src", "/src/named"], "x", named("/src/named", "/src/named")),
        (&["/src", "/src/empty"], "x", named("app", "/src")),
        (&["/srv"], "app", named("app", "app")),
        (&["/src/named"], "app", named("app", "app")),
        (&["/srv"], "none", None),
        (&[], "", None),
    ] {
        assert_eq!(found(tenant, above, listed).await, want, "{above:?} {listed}");
    }
    assert_eq!(found(other, &["/src/app"], "app").await, None, "another tenant");
}

#[tokio::test]
async fn a_project_gets_another_source_from_its_own_tenant_only() {
    let mut world = World::new().await;
    let (project, other) = (world.project.clone(), world.sample.tenant());
    world.store.create_tenant(other, "second").await.unwrap();
    let before = world.store.get_project(world.tenant, &project).await.unwrap();
    let origin = Origin::GitUrl("https://example.org/b.git".to_owned());
    let source = Source { origin, ..Source::default() };
    let foreign = world.store.set_project_source(other, &project, &source).await;
    assert!(matches!(foreign, Err(Error::NotFound(Entity::Project))), "{foreign:?}");
    assert_eq!(world.store.get_project(world.tenant, &project).await.unwrap(), before);
    let changed = world.store.set_project_source(world.tenant, &project, &source).await.unwrap();
    assert!(changed.source == source && changed.updated_at > before.updated_at);
    assert_eq!(world.store.get_project(world.tenant, &project).await.unwrap(), changed);
}

#[tokio::test]
async fn the_display_settings_of_a_project_can_be_updated_separately() {
    let mut world = World::new().await;
    let (project, other) = (world.project.clone(), world.sample.tenant());
    world.store.create_tenant(other, "second").await.unwrap();
    let before = world.store.get_project(world.tenant, &project).await.unwrap();
    assert_eq!((&before.display, before.updated_at), (&ProjectDisplay::default(), before.created_at));
    let icon = Icon { color: Some("mint".to_owned()), ..Icon::default() };
    let named = ProjectDisplay { name: Some("Shop".to_owned()), icon: Some(icon.clone()), commands: None };
    let with = |change: ProjectDisplay| move |display: &ProjectDisplay| Some(display.changed(&change));
    let update = async |change: ProjectDisplay| {
        world.store.update_project(world.tenant, &project, with(change)).await.unwrap().unwrap()
    };
    let first = update(named.clone()).await;
    assert_eq!(first.display, named);
    assert!(first.updated_at > before.updated_at && first.created_at == before.created_at);
    let commands = Some(Commands { start: Some("make".to_owned()) });
    let drawn = Some(Icon { url: Some("data:,x".to_owned()), ..Icon::default() });
    let second =
        update(ProjectDisplay { commands: commands.clone(), icon: drawn, ..ProjectDisplay::default() }).await;
    let icon = Icon { url: Some("data:,x".to_owned()), ..icon };
    assert_eq!(second.display, ProjectDisplay { commands, icon: Some(icon), ..named });
    let refused = world.store.update_project(world.tenant, &project, |_| None).await.unwrap();
    assert_eq!(refused, None);
    assert_eq!(world.store.get_project(world.tenant, &project).await.unwrap(), second);
    let foreign = world.store.update_project(other, &project, with(ProjectDisplay::default())).await;
    assert!(matches!(foreign, Err(Error::NotFound(Entity::Project))), "{foreign:?}");
}

#[tokio::test]
async fn a_project_is_known_at_its_places() {
    let mut world = World::new().await;
    let (store, tenant) = (world.store.clone(), world.tenant);
    let (first, second) = (world.sample.project(), world.sample.project());
    for (id, name) in [(&first, "first"), (&second, "/home/me/second")] {
        store.create_project(tenant, id, name, &Source::default()).await.unwrap();
    }
    let found = async |place: &str| {
        let found = store.find_project(tenant, place).await.unwrap();
        found.map(|project| project.name).unwrap_or_default()
    };
    let places = ["/home/me/app", "/home/me/second", "example.com/me/app"].map(str::to_owned);
    store.add_project_places(tenant, &first, &places).await.unwrap();
    assert_eq!(found("/home/me/app").await, "first");
    assert_eq!(found("example.com/me/app").await, "first");
    assert_eq!(found("/home/me/second").await, "/home/me/second", "a name goes first");
    assert_eq!(found("/home/me").await, "");
    let identities = async |tenant| store.list_project_identities(tenant, &first).await.unwrap();
    assert_eq!(identities(tenant).await, ["example.com/me/app"]);
    assert_eq!(identities(world.sample.tenant()).await, [""; 0], "not its project");
    store.add_project_places(tenant, &second, &places[..1]).await.unwrap();
    assert_eq!(found("/home/me/app").await, "/home/me/second", "the newest project has the place");
    store.remove_project_places(tenant, &first).await.unwrap();
    assert_eq!(
        (found("example.com/me/app").await, found("first").await),
        (String::new(), "first".to_owned())
    );
    let other = world.sample.tenant();
    store.create_tenant(other, "second").await.unwrap();
    assert_eq!(store.find_project(other, "/home/me/app").await.unwrap(), None);
    assert!(store.add_project_places(other, &first, &places).await.is_err(), "not its project");
}

#[tokio::test]
async fn a_project_without_files_gets_the_first_source() {
    let mut world = World::new().await;
    let (store, tenant, id) = (world.store.clone(), world.tenant, world.sample.project());
    let source =
        |name: &str| Source { origin: Origin::GitUrl(format!("https://{name}")), ..Source::default() };
    let mut sources = vec![];
    for new_source in [Source::default(), source("a"), source("b"), Source::default()] {
        sources.push(store.create_project(tenant, &id, "app", &new_source).await.unwrap().project.source);
    }
    assert_eq!(sources, [Source::default(), source("a"), source("a"), source("a")]);
}

#[tokio::test]
async fn only_a_project_without_sessions_is_deleted() {
    let mut world = World::new().await;
    let (store, tenant, id) = (world.store.clone(), world.tenant, world.sample.project());
    store.create_project(tenant, &id, "app", &Source::default()).await.unwrap();
    store.add_project_places(tenant, &id, &["/home/me/app".to_owned()]).await.unwrap();
    let other = world.sample.tenant();
    store.create_tenant(other, "second").await.unwrap();
    let missing = |result| matches!(result, Err(Error::NotFound(Entity::Project)));
    assert!(missing(store.delete_project(other, &id, Deletable::All).await));
    let deleted = store.delete_project(tenant, &id, Deletable::Unconfigured).await.unwrap();
    assert_eq!(deleted, ProjectDeletion::Deleted);
    assert!(missing(store.delete_project(tenant, &id, Deletable::All).await));
    assert_eq!(store.find_project(tenant, "/home/me/app").await.unwrap(), None);
    world.session().await;
    let used = world.project.clone();
    let kept = world.store.delete_project(tenant, &used, Deletable::All).await.unwrap();
    assert_eq!(kept, ProjectDeletion::HasSessions);
    assert!(world.store.get_project(tenant, &used).await.is_ok());
}
