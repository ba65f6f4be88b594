/*
 * The way of a scope's epochs: open, prepare, vote, decide, close, finish, restore. The words are those of
 * coordinator/ledger; README.md has the table of actions and commands.
 *
 * The replicated log is one atomic state: that Raft makes it one is not the matter of this model. Leaders
 * have no state at all. A proposal, once made by anybody from what was true then, stays in a pool, and
 * may be applied at any later time and any number of times: that is every leader, deposed or not, and every
 * message lost, late or repeated. A fact that was applied is heard at some time, or never.
 *
 * Sizes and switches are given with -D. Each switch takes one rule away; run says what must happen then.
 */
#include "ledger.pml"

#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef REPEATS
#define REPEATS 1
#endif
#ifndef LATES
#define LATES 1
#endif
#ifndef REWINDS
#define REWINDS 1
#endif
#ifndef PENDING
#define PENDING 2
#endif

/* A branch may have two names: the answer of one prepare was lost, and it was done again. */
#define B(m, e, a) (2 * V(m, e) + (a) - 1)

#define NONE 0
#define PREPARED 1
#define COMMITTED 2
#define ROLLEDBACK 3

/* ---- proposals ----
 *
 * What a proposer had seen matters only to the switches: whatever has made a proposal right when it was made,
 * votes above all, stays true, and the command itself is judged when it is applied. */

bool asked_close[GENERATIONS + 1];
#ifdef STALE_RESTORE
bool asked_open[GENERATIONS + 1]; /* by its from */
byte seen_open[GENERATIONS + 1];
#endif
byte rewinds;

/* ---- the resources, one of each member ---- */

byte branch[2 * MEMBERS * SLOTS];
byte fence[MEMBERS];        /* the newest generation that opened it */
byte applied[MEMBERS];      /* newest epoch committed in it: upserts must not go back */
byte landing[MEMBERS];      /* a prepare on its way to it; it may arrive very late */
byte landing_name[MEMBERS];

/* ---- the members' processes ---- */

byte works[MEMBERS];        /* the generation that it works in; 0: just started */
bool restoring[MEMBERS];    /* the resource is fenced, older work is being finished */
byte newest[MEMBERS];       /* newest epoch prepared in it */
byte name[MEMBERS];         /* of that branch */
byte through[MEMBERS];      /* its own branches are proven through here */
byte crashes, repeats, lates; /* how often each has happened */

/* Older epochs of this resource are resolved, or will never commit. */
#define DONE(m, e) (listed[V(m, e)] == 0 || resolved[V(m, e)])
#define BEFORE(m, e, limit) ((e) >= (limit) || DONE(m, e))
#if GENERATIONS == 2
#define OLDER(m, e) (BEFORE(m, E(1, 1), e) && BEFORE(m, E(1, 2), e) && BEFORE(m, E(2, 1), e) && BEFORE(m, E(2, 2), e))
#else
#define OLDER(m, e) (BEFORE(m, E(1, 1), e) && BEFORE(m, E(1, 2), e) && BEFORE(m, E(2, 1), e) && BEFORE(m, E(2, 2), e) \
	&& BEFORE(m, E(3, 1), e) && BEFORE(m, E(3, 2), e))
#endif
#ifdef FINISH_OUT_OF_ORDER
#define IN_ORDER(m, e) true
#else
#define IN_ORDER(m, e) OLDER(m, e)
#endif

#if MEMBERS == 1
#define ALL_VOTED(e) (vote[V(0, e)] != 0)
#elif MEMBERS == 2
#define ALL_VOTED(e) (vote[V(0, e)] != 0 && vote[V(1, e)] != 0)
#else
#define ALL_VOTED(e) (vote[V(0, e)] != 0 && vote[V(1, e)] != 0 && vote[V(2, e)] != 0)
#endif
#ifdef PARTIAL_VOTES
#undef ALL_VOTED
#define ALL_VOTED(e) (vote[V(0, e)] != 0)
#endif

inline commit(m, g, n, a) {
	assert(DECIDED(g, n) && listed[V(m, E(g, n))] == (a)); /* nothing else ever commits */
	assert(branch[B(m, E(g, n), a)] != ROLLEDBACK);        /* what is decided can be committed */
	assert(branch[B(m, E(g, n), a)] != NONE);
	if
	:: branch[B(m, E(g, n), a)] != COMMITTED ->
		assert(E(g, n) > applied[m]); /* in order */
		branch[B(m, E(g, n), a)] = COMMITTED;
		applied[m] = E(g, n)
	:: else /* a repeat changes nothing */
	fi
}

inline roll_back(m, g, n, a) {
	assert(branch[B(m, E(g, n), a)] != COMMITTED);
	assert(!(DECIDED(g, n) && listed[V(m, E(g, n))] == (a)));
	branch[B(m, E(g, n), a)] = ROLLEDBACK
}

/* Most prepares arrive at once; some are on their way for long. */
inline prepare(m, a) {
	if
	:: branch[B(m, E(works[m], newest[m]), a)] = PREPARED
	:: lates < LATES -> lates++; landing[m] = E(works[m], newest[m]); landing_name[m] = a
	fi
}

#ifdef ROLL_BACK_BEFORE_APPLIED
#define HEARD_CLOSE(g) asked_close[g]
#else
#define HEARD_CLOSE(g) (!open[g])
#endif
#ifdef CLOSE_WITHOUT_FINAL
#define ABOVE_FINAL(m) (newest[m] > through[m]) /* it has not heard of a decision */
#else
#define ABOVE_FINAL(m) (newest[m] > final[works[m]])
#endif

proctype Member(byte m) {
end:	do
	/* Restore: fence the resource; then finish what is listed, roll back the rest; only then begin. */
	:: atomic { current > 0 && open[current] && fence[m] < current ->
		fence[m] = current;
		works[m] = current; newest[m] = 0; name[m] = 0; through[m] = 0;
		restoring[m] = true
	   }
	:: atomic { restoring[m] && OLDER(m, E(works[m], 0)) -> restoring[m] = false }
	/* Prepare the next epoch. The resource lets nobody else begin. */
	:: atomic { works[m] > 0 && !restoring[m] && fence[m] == works[m] && landing[m] == 0 && newest[m] < EPOCHS &&
			newest[m] < through[m] + PENDING &&
			(newest[m] == 0 || vote[V(m, E(works[m], newest[m]))] != 0) ->
		newest[m]++; name[m] = 1;
		prepare(m, 1)
	   }
	/* The answer was lost; it is prepared again, under another name. */
	:: atomic { repeats < REPEATS && works[m] > 0 && name[m] == 1 && landing[m] == 0 && fence[m] == works[m] &&
			vote[V(m, E(works[m], newest[m]))] == 0 && branch[B(m, E(works[m], newest[m]), 1)] == PREPARED ->
		repeats++; name[m] = 2;
		prepare(m, 2)
	   }
	/* A vote: prepared, and staying so until an applied decision or an applied close. */
	:: atomic { works[m] > 0 && newest[m] > 0 && vote[V(m, E(works[m], newest[m]))] == 0 &&
			branch[B(m, E(works[m], newest[m]), name[m])] == PREPARED ->
		vote[V(m, E(works[m], newest[m]))] = name[m]
	   }
#ifdef VOTE_TAKEN_BACK
	:: atomic { works[m] > 0 && newest[m] > 0 && vote[V(m, E(works[m], newest[m]))] != 0 && !DECIDED(works[m], newest[m]) &&
			branch[B(m, E(works[m], newest[m]), name[m])] == PREPARED ->
		branch[B(m, E(works[m], newest[m]), name[m])] = ROLLEDBACK /* it had waited for too long */
	   }
#endif
	/* Committed(g, n) was heard. */
	:: atomic { works[m] > 0 && !restoring[m] && through[m] < newest[m] && DECIDED(works[m], through[m] + 1) &&
			IN_ORDER(m, E(works[m], through[m] + 1)) ->
		through[m]++;
		commit(m, works[m], through[m], listed[V(m, E(works[m], through[m]))])
	   }
	/* The proof rides in the next vote, or goes alone. */
	:: atomic { works[m] > 0 && through[m] > 0 && !resolved[V(m, E(works[m], through[m]))] -> resolve(m, works[m], through[m]) }
	/* The close of its generation was heard, with final(g). */
	:: atomic { works[m] > 0 && newest[m] > 0 && branch[B(m, E(works[m], newest[m]), name[m])] == PREPARED &&
			HEARD_CLOSE(works[m]) && ABOVE_FINAL(m) ->
		branch[B(m, E(works[m], newest[m]), name[m])] = ROLLEDBACK
	   }
	:: atomic { works[m] > 0 && crashes < CRASHES ->
		crashes++; works[m] = 0; restoring[m] = false; newest[m] = 0; name[m] = 0; through[m] = 0
	   }
	/* The prepare arrives, also when its process is dead, fenced or told to stop. */
	:: atomic { landing[m] != 0 ->
		if
		:: branch[B(m, landing[m], landing_name[m])] == NONE -> branch[B(m, landing[m], landing_name[m])] = PREPARED
		:: else
		fi;
		landing[m] = 0; landing_name[m] = 0
	   }
	od
}

/* Leaders: they propose, and the log applies it some time. */
#define PROPOSE(g, n) \
	:: atomic { ALL_VOTED(E(g, n)) && CAN_DECIDE(g, n) -> decide(g, n) }
#ifdef ROLL_BACK_BEFORE_APPLIED
#define END(g) \
	:: atomic { open[g] && !asked_close[g] && g < GENERATIONS -> asked_close[g] = true } \
	:: atomic { open[g] && asked_close[g] -> close_generation(g) }
#else
#define END(g) \
	:: atomic { open[g] && g < GENERATIONS -> close_generation(g) }
#endif
#ifdef STALE_RESTORE
#define BEGIN(g) \
	:: atomic { current == g && g < GENERATIONS && !asked_open[g] -> asked_open[g] = true; seen_open[g] = decided } \
	:: atomic { asked_open[g] && CAN_OPEN(g) -> open_generation(g, seen_open[g]) }
#else
#define BEGIN(g) \
	:: atomic { CAN_OPEN(g) -> open_generation(g, 0) }
#endif

proctype Leaders() {
end:	do
	PROPOSE(1, 1)
	PROPOSE(1, 2)
	PROPOSE(2, 1)
	PROPOSE(2, 2)
	END(1)
	END(2)
	BEGIN(0)
	BEGIN(1)
#if GENERATIONS == 3
	PROPOSE(3, 1)
	PROPOSE(3, 2)
	END(3)
	BEGIN(2)
#endif
	:: atomic { rewinds < REWINDS && current > 0 && !open[current] && decided > 0 -> rewinds++; rewind() }
	od
}

/* Whoever finishes: another holder of the resource, or a resolver. It looks again and again. */
#ifdef LIST_ONCE
bool looked[MEMBERS * (GENERATIONS + 1)];
#define LOOKS(m, g) (!looked[m * (GENERATIONS + 1) + g])
#else
#define LOOKS(m, g) true
#endif
#define FINISH(g, n, a) \
	:: atomic { DECIDED(g, n) && listed[V(m, E(g, n))] == a && !resolved[V(m, E(g, n))] && IN_ORDER(m, E(g, n)) \
			&& branch[B(m, E(g, n), a)] != COMMITTED -> commit(m, g, n, a) } \
	:: atomic { branch[B(m, E(g, n), a)] == COMMITTED && !resolved[V(m, E(g, n))] -> resolve(m, g, n) } \
	:: atomic { branch[B(m, E(g, n), a)] == PREPARED && (DECIDED(g, n) || g <= current && !open[g]) && LOOKS(m, g) \
			&& JUDGED_DEAD(g, n, a) -> VERDICT(g, n, a) }
#ifdef JUDGED_BY_EPOCH
#define JUDGED_DEAD(g, n, a) (listed[V(m, E(g, n))] != a)
#define VERDICT(g, n, a) if :: DECIDED(g, n) -> commit(m, g, n, a) :: else -> roll_back(m, g, n, a) fi
#else
#define JUDGED_DEAD(g, n, a) (listed[V(m, E(g, n))] != a)
#define VERDICT(g, n, a) roll_back(m, g, n, a)
#endif

proctype Finisher(byte m) {
end:	do
	FINISH(1, 1, 1)
	FINISH(1, 1, 2)
	FINISH(1, 2, 1)
	FINISH(1, 2, 2)
	FINISH(2, 1, 1)
	FINISH(2, 1, 2)
	FINISH(2, 2, 1)
	FINISH(2, 2, 2)
#if GENERATIONS == 3
	FINISH(3, 1, 1)
	FINISH(3, 1, 2)
	FINISH(3, 2, 1)
	FINISH(3, 2, 2)
#endif
#ifdef LIST_ONCE
	:: atomic { !looked[m * (GENERATIONS + 1) + 1] && current > 0 && !open[1] -> looked[m * (GENERATIONS + 1) + 1] = true }
#endif
	od
}

/* Every step but a crash goes forward and each is taken at most so often, so a run ends. Where it ends,
 * nothing is left in doubt: promise 5 and 6. */
proctype AtTheEnd() {
	byte m, e, a;
	timeout ->
	d_step {
		m = 0;
		do
		:: m < MEMBERS ->
			e = E(1, 1);
			do
			:: e < SLOTS ->
				if
				:: e % (EPOCHS + 1) != 0 ->
					if
					:: listed[V(m, e)] != 0 ->
						assert(branch[B(m, e, listed[V(m, e)])] == COMMITTED);
						assert(resolved[V(m, e)]);
						assert(branch[B(m, e, 3 - listed[V(m, e)])] != PREPARED)
					:: listed[V(m, e)] == 0 && !open[e / (EPOCHS + 1)] ->
						assert(branch[B(m, e, 1)] != PREPARED && branch[B(m, e, 2)] != PREPARED)
					:: else
					fi
				:: else
				fi;
				e++
			:: else -> break
			od;
			m++
		:: else -> break
		od;
		assert(current == GENERATIONS)
	}
}

init {
	atomic {
		run Leaders();
		run Member(0); run Finisher(0);
#if MEMBERS > 1
		run Member(1); run Finisher(1);
#endif
#if MEMBERS > 2
		run Member(2); run Finisher(2);
#endif
		run AtTheEnd()
	}
}
