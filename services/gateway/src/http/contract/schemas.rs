//! The named schemas of the document, in the notation of [`super::notation`].

/// All schemas, by name.
pub(super) const ALL: &[(&str, &str)] = &[
    (
        "Agent",
        "{name description? mode:'primary'|'subagent'|'all' native:boolean hidden:boolean permission:Rule[] \
         model?:Model options:any{}}",
    ),
    (
        "Assistant",
        "{id sessionID role:'assistant' parentID providerID modelID variant? mode agent path:{cwd root} \
         cost:number tokens:Tokens time:{created:integer completed?:integer} finish? error?:Failure \
         summary?:boolean structured?:any}",
    ),
    ("Command", "{name description? source? template hints:string[] subtask?:boolean}"),
    ("Config", "{model small_model?}"),
    ("Event", "{id type properties:any{}}"),
    ("Failure", "{name data:{message}}"),
    ("File", "{name path absolute type:'file'|'directory' ignored:boolean}"),
    ("FileDiff", "{file? patch? additions:integer deletions:integer status?:'added'|'deleted'|'modified'}"),
    ("Location", "{directory project:{id directory}}"),
    ("Match", "{path:{text} lines:{text} line_number:integer absolute_offset:integer submatches:any[]}"),
    ("Model", "{providerID modelID}"),
    // The other members depend on the type.
    ("Part", "{id sessionID messageID type}"),
    ("V2Event", "{id type durable:{aggregateID seq:integer version:integer} data:any{}}"),
    // The other members depend on the type.
    ("V2Message", "{id type time:{created:integer completed?:integer}}"),
    (
        "V2Permission",
        "{id sessionID action resources:string[] save:string[] metadata:any{} source:{type messageID callID}}",
    ),
    (
        "V2Session",
        "{id parentID? projectID agent model:{id providerID} cost:number tokens:Tokens title \
         time:{created:integer updated:integer archived?:integer} location:{directory} revert?:any}",
    ),
    (
        "Permission",
        "{id sessionID permission patterns:string[] always:string[] metadata:any{} tool?:{messageID callID}}",
    ),
    (
        "Project",
        "{id name? worktree vcs? icon?:{url? override? color?} commands?:{start?} \
         time:{created:integer updated:integer} sandboxes:string[]}",
    ),
    (
        "Prompt",
        "{parts:PromptPart[] messageID? model?:Model agent? noReply?:boolean tools?:boolean{} \
         format?:{type:'text'}|{type:'json_schema' schema:any retryCount?:integer} system? variant?}",
    ),
    (
        "PromptPart",
        "{type:'text' id? text}|{type:'file' id? mime filename? url source?:any}|{type:'agent' id? name source?:any}\
         |{type:'subtask' id? prompt description agent model?:Model command?}",
    ),
    ("Provider", "{id name source env:string[] options:any{} models:any{}}"),
    (
        "Question",
        "{id sessionID questions:{question header options:{label description}[] multiple?:boolean}[] \
         tool?:{messageID callID}}",
    ),
    ("Refusal", "{name data:{message kind?}}|{_tag message?}"),
    ("Rule", "{permission pattern action:'allow'|'ask'|'deny'}"),
    ("Message", "{info:User|Assistant parts:Part[]}"),
    ("GlobalSession", "{id slug projectID directory title version project:{id name? worktree}}"),
    (
        "Session",
        "{id slug projectID directory parentID? title version agent model:{id providerID} cost:number tokens:Tokens \
         summary?:{additions:integer deletions:integer files:integer} \
         revert?:{messageID partID? snapshot? diff?} permission?:Rule[] \
         time:{created:integer updated:integer archived?:integer}}",
    ),
    (
        "Terminal",
        "{id title command args:string[] cwd status:'running'|'exited' pid:integer exitCode?:integer}",
    ),
    ("Todo", "{content status priority}"),
    (
        "Tokens",
        "{input:integer output:integer reasoning:integer cache:{read:integer write:integer} total?:integer}",
    ),
    (
        "User",
        "{id sessionID role:'user' agent model:{providerID modelID variant?} time:{created:integer} system? \
         tools?:boolean{} format?:any summary?:{diffs:FileDiff[]}}",
    ),
];
