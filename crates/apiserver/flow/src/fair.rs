//! Who gets the next seat: a state machine without I/O.
//!
//! There are so many seats. Whoever comes when there is room sits down; else it waits in its user's queue, and a seat
//! that becomes free goes to the workspace that holds the fewest, in it to the priority level that holds the fewest for
//! each of its shares, in that to the user who holds the fewest, and among equals to whoever was served longest ago. So
//! those who want much share what those who want little leave, whatever their requests cost and however long they take;
//! no seat is empty while somebody fits into it.
//!
//! A workspace that holds none need not wait for one while there are spare seats beside the others, which are for this
//! only: so a quiet tenant is not made to wait for what a loud one has begun.
//!
//! Seats are lent for a time. A request that takes longer (its client reads slowly, a webhook does not answer) goes on,
//! but its seat is given to another if somebody waits for one. It still counts for its workspace, which is served later
//! for it, so nobody can sit everybody else out.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

/// How much a level takes on.
#[derive(Clone, Debug)]
pub struct Room {
    pub seats: usize,
    /// Requests that wait, of all together and of one user.
    pub waiting: usize,
    pub waiting_of_one: usize,
    /// How long a seat is lent while others wait.
    pub lent: Duration,
}

/// Seats that were given on while their requests went on, as a multiple of all seats: even these are bounded.
pub const OVERDRAWN: usize = 8;
/// No request takes more than this part of the seats: it would have to wait for all the others, and they for it.
const WIDEST: usize = 4;

pub type Id = u64;

/// `W` is what is needed to wake who waits.
pub struct Fair<W> {
    room: Room,
    /// Seats taken; those that were given on are not among them.
    taken: usize,
    /// Spare seats taken; there are as many as others.
    spare: usize,
    overdrawn: usize,
    waiting: usize,
    /// Counts grants: who was served when.
    turn: u64,
    next: Id,
    workspaces: HashMap<Arc<str>, Workspace<W>>,
    places: HashMap<Id, Place>,
    /// No seat is due before this.
    due: Option<Instant>,
}

struct Workspace<W> {
    held: usize,
    limit: Option<usize>,
    waiting: usize,
    turn: u64,
    users: HashMap<Arc<str>, User<W>>,
    /// The priority levels of those users.
    levels: HashMap<Arc<str>, Priority>,
}

/// A priority level within one workspace.
struct Priority {
    held: usize,
    shares: u32,
    /// How many users it has.
    users: usize,
}

impl Priority {
    /// What it would hold for each of its shares with one seat more. The level with the least is served next.
    fn load(&self) -> u64 {
        const UNIT: u64 = 1 << 20;
        (self.held as u64 + 1) * UNIT / u64::from(self.shares.max(1))
    }
}

struct User<W> {
    level: Arc<str>,
    held: usize,
    turn: u64,
    queue: VecDeque<Waiter<W>>,
}

struct Waiter<W> {
    id: Id,
    width: usize,
    wake: W,
}

/// What a request that is here has.
struct Place {
    workspace: Arc<str>,
    user: Arc<str>,
    width: usize,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Seated {
        until: Instant,
        spare: bool,
    },
    /// Its seat was given on.
    Overdrawn,
}

/// One that wants in.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub workspace: &'a str,
    /// The user who asks, or the flow that the request is part of. A flow belongs to one level only.
    pub user: &'a str,
    /// The priority level, and its shares in what the workspace has.
    pub level: &'a str,
    pub shares: u32,
    /// Seats that it takes.
    pub width: usize,
    /// What the workspace may hold at most.
    pub limit: Option<usize>,
}

/// There is no room to wait either.
#[derive(Debug, PartialEq, Eq)]
pub struct Full {
    /// How many of the same workspace wait.
    pub ahead: usize,
}

impl<W> Workspace<W> {
    /// A user has nothing here any more.
    fn forget(&mut self, user: &str) {
        let Some(gone) = self.users.remove(user) else { return };
        let Some(level) = self.levels.get_mut(&gone.level) else { return };
        level.users -= 1;
        if level.users == 0 {
            self.levels.remove(&gone.level);
        }
    }
}

impl<W> Fair<W> {
    pub fn new(room: Room) -> Self {
        Self {
            room,
            taken: 0,
            spare: 0,
            overdrawn: 0,
            waiting: 0,
            turn: 0,
            next: 0,
            workspaces: HashMap::new(),
            places: HashMap::new(),
            due: None,
        }
    }

    pub fn taken(&self) -> usize {
        self.taken + self.spare
    }

    /// How many seats there are.
    pub fn seats(&self) -> usize {
        self.room.seats
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// A seat at once, if there is one and nobody else has a right to it.
    pub fn sit(&mut self, request: Request<'_>, now: Instant) -> Option<Id> {
        let width = self.width(request.width);
        let held = self.workspaces.get(request.workspace).map_or(0, |workspace| workspace.held);
        let free = self.taken + width <= self.room.seats && self.next_up().is_none();
        let spare = !free && held == 0 && self.spare + width <= self.room.seats;
        if !(free || spare) || held >= request.limit.unwrap_or(usize::MAX) {
            return None;
        }
        let id = self.enter(request, width);
        self.seat(id, now, spare);
        Some(id)
    }

    /// A place in the queue. Where all places are taken, whoever waits with the most others gives way; it is answered
    /// here.
    pub fn wait(&mut self, request: Request<'_>, wake: W) -> Result<(Id, Option<W>), Full> {
        let width = self.width(request.width);
        let workspace = self.workspaces.get(request.workspace);
        let ahead = workspace.map_or(0, |workspace| workspace.waiting);
        let own = workspace.and_then(|w| w.users.get(request.user)).map_or(0, |user| user.queue.len());
        if own >= self.room.waiting_of_one {
            return Err(Full { ahead });
        }
        let mut gone = None;
        if self.waiting >= self.room.waiting {
            gone = self.give_way(ahead);
            if gone.is_none() {
                return Err(Full { ahead });
            }
        }
        let id = self.enter(request, width);
        if let Some(workspace) = self.workspaces.get_mut(request.workspace) {
            workspace.waiting += 1;
            if let Some(user) = workspace.users.get_mut(request.user) {
                user.queue.push_back(Waiter { id, width, wake });
            }
        }
        self.waiting += 1;
        Ok((id, gone))
    }

    /// A request has ended, or does not want to wait any longer. Answers whom to wake.
    pub fn leave(&mut self, id: Id, now: Instant) -> Vec<W> {
        let Some(place) = self.places.remove(&id) else { return Vec::new() };
        let Some(workspace) = self.workspaces.get_mut(&place.workspace) else { return Vec::new() };
        let Some(user) = workspace.users.get_mut(&place.user) else { return Vec::new() };
        match place.state {
            State::Waiting => {
                user.queue.retain(|waiter| waiter.id != id);
                workspace.waiting -= 1;
                self.waiting -= 1;
            }
            State::Seated { .. } | State::Overdrawn => {
                user.held -= place.width;
                workspace.held -= place.width;
                if let Some(level) = workspace.levels.get_mut(&user.level) {
                    level.held -= place.width;
                }
                match place.state {
                    State::Overdrawn => self.overdrawn -= place.width,
                    State::Seated { spare: true, .. } => self.spare -= place.width,
                    _ => self.taken -= place.width,
                }
            }
        }
        if user.held == 0 && user.queue.is_empty() {
            workspace.forget(&place.user);
        }
        if workspace.users.is_empty() {
            self.workspaces.remove(&place.workspace);
        }
        self.serve(now)
    }

    /// Gives seats on that were lent for too long, if somebody waits. Answers whom to wake.
    pub fn reclaim(&mut self, now: Instant) -> Vec<W> {
        if self.waiting == 0 || self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let mut next = None;
        for place in self.places.values_mut() {
            let State::Seated { until, spare } = place.state else { continue };
            if until <= now && self.overdrawn + place.width <= OVERDRAWN * self.room.seats {
                place.state = State::Overdrawn;
                let pool = if spare { &mut self.spare } else { &mut self.taken };
                *pool -= place.width;
                self.overdrawn += place.width;
            } else {
                next = Some(next.map_or(until, |next: Instant| next.min(until)));
            }
        }
        self.due = next.map(|next| next.max(now + self.room.lent / 8));
        self.serve(now)
    }

    /// This request sits on a seat of its own.
    pub fn is_seated(&self, id: Id) -> bool {
        self.places.get(&id).is_some_and(|place| matches!(place.state, State::Seated { .. }))
    }

    fn width(&self, width: usize) -> usize {
        width.clamp(1, (self.room.seats / WIDEST).max(1))
    }

    fn enter(&mut self, request: Request<'_>, width: usize) -> Id {
        let name = match self.workspaces.get_key_value(request.workspace) {
            Some((name, _)) => name.clone(),
            None => request.workspace.into(),
        };
        // A newcomer's turn is now: having been away earns nothing.
        let turn = self.turn;
        let workspace = self.workspaces.entry(name.clone()).or_insert_with(|| Workspace {
            held: 0,
            limit: None,
            waiting: 0,
            turn,
            users: HashMap::new(),
            levels: HashMap::new(),
        });
        workspace.limit = request.limit;
        let user = match workspace.users.get_key_value(request.user) {
            Some((user, _)) => user.clone(),
            None => {
                let user: Arc<str> = request.user.into();
                let level = match workspace.levels.get_key_value(request.level) {
                    Some((level, _)) => level.clone(),
                    None => request.level.into(),
                };
                let new = || Priority { held: 0, shares: 0, users: 0 };
                workspace.levels.entry(level.clone()).or_insert_with(new).users += 1;
                workspace.users.insert(user.clone(), User { level, held: 0, turn, queue: VecDeque::new() });
                user
            }
        };
        if let Some(level) = workspace.levels.get_mut(request.level) {
            level.shares = request.shares;
        }
        self.next += 1;
        self.places.insert(self.next, Place { workspace: name, user, width, state: State::Waiting });
        self.next
    }

    /// Marks the place as seated. If it waited, the caller has taken it out of its queue.
    fn seat(&mut self, id: Id, now: Instant, spare: bool) {
        let Some(place) = self.places.get_mut(&id) else { return };
        let until = now + self.room.lent;
        place.state = State::Seated { until, spare };
        self.due.get_or_insert(until);
        let pool = if spare { &mut self.spare } else { &mut self.taken };
        *pool += place.width;
        self.turn += 1;
        let Some(workspace) = self.workspaces.get_mut(&place.workspace) else { return };
        workspace.held += place.width;
        workspace.turn = self.turn;
        let Some(user) = workspace.users.get_mut(&place.user) else { return };
        user.held += place.width;
        user.turn = self.turn;
        if let Some(level) = workspace.levels.get_mut(&user.level) {
            level.held += place.width;
        }
    }

    /// Whose turn it is among those who wait.
    fn next_up(&self) -> Option<(&Arc<str>, &Arc<str>)> {
        if self.waiting == 0 {
            return None;
        }
        let most = |limit: Option<usize>| limit.unwrap_or(usize::MAX).min(OVERDRAWN * self.room.seats);
        let may = self.workspaces.iter().filter(|(_, w)| w.waiting > 0 && w.held < most(w.limit));
        let (name, workspace) = may.min_by_key(|(_, w)| (w.held, w.turn))?;
        let waiting = workspace.users.iter().filter(|(_, user)| !user.queue.is_empty());
        let load = |user: &User<W>| workspace.levels.get(&user.level).map_or(0, Priority::load);
        let (user, _) = waiting.min_by_key(|(_, user)| (load(user), user.held, user.turn))?;
        Some((name, user))
    }

    /// Gives out what is free. One that needs more than is free keeps the others back until it fits.
    fn serve(&mut self, now: Instant) -> Vec<W> {
        let mut woken = Vec::new();
        while let Some((name, user)) = self.next_up() {
            let (name, user) = (name.clone(), user.clone());
            let (taken, spare, seats) = (self.taken, self.spare, self.room.seats);
            let Some(workspace) = self.workspaces.get_mut(&name) else { break };
            let Some(user) = workspace.users.get_mut(&user) else { break };
            let free = |waiter: &Waiter<W>| taken + waiter.width <= seats;
            let fits = |w: &mut Waiter<W>| free(w) || (workspace.held == 0 && spare + w.width <= seats);
            let Some(waiter) = user.queue.pop_front_if(fits) else { break };
            let spare = !free(&waiter);
            workspace.waiting -= 1;
            self.waiting -= 1;
            self.seat(waiter.id, now, spare);
            woken.push(waiter.wake);
        }
        woken
    }

    /// The last one in the longest queue goes, if its workspace has more waiting than the newcomer's.
    fn give_way(&mut self, ahead: usize) -> Option<W> {
        let (name, workspace) = self.workspaces.iter_mut().max_by_key(|(_, workspace)| workspace.waiting)?;
        if workspace.waiting <= ahead + 1 {
            return None;
        }
        let (user_name, user) = workspace.users.iter_mut().max_by_key(|(_, user)| user.queue.len())?;
        let waiter = user.queue.pop_back()?;
        workspace.waiting -= 1;
        self.waiting -= 1;
        self.places.remove(&waiter.id);
        if user.held == 0 && user.queue.is_empty() {
            let user_name = user_name.clone();
            workspace.forget(&user_name);
        }
        if workspace.users.is_empty() {
            let name = name.clone();
            self.workspaces.remove(&name);
        }
        Some(waiter.wake)
    }
}
