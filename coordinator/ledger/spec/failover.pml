/*
 * Barriers through changes of the leader. One generation stays open; a leader's rounds are volatile, and the
 * next one builds them from the log and from what members say when they re-attach.
 *
 * Every member here is a source: a barrier is injected once per epoch, however often it is ordered. What is
 * shown is progress: whatever leaders come and go, every epoch is decided in the end.
 */
#ifndef EPOCHS
#define EPOCHS 4
#endif
#ifndef CHANGES
#define CHANGES 2
#endif
#ifndef PENDING
#define PENDING 2
#endif
#define MEMBERS 2
#define S(m, n) ((m) * (EPOCHS + 1) + (n))

byte final;                           /* in the log */
byte proven[MEMBERS];                 /* by the members, in order */
bool voted[MEMBERS * (EPOCHS + 1)];   /* promises about an epoch, not about a leader */
byte told[MEMBERS];                   /* and what of it they have told */
byte seen[MEMBERS];                   /* newest barrier injected */

byte newest;                          /* the leader: newest barrier ordered */
byte heard[MEMBERS];                  /* proven through, as told */
bool attached[MEMBERS];
byte on_its_way[MEMBERS];             /* an order, 0: none */
byte ordered[MEMBERS];                /* newest order sent to a member by this leader */
byte changes;

#define LEAST(a, b) ((a) < (b) -> (a) : (b))
#define READY (attached[0] && attached[1])
#define ROOM (newest < LEAST(heard[0], heard[1]) + PENDING)

inline attach(m) {
	attached[m] = true;
#ifndef WITHOUT_PROVEN_THROUGH
	heard[m] = proven[m];
#endif
	/* Complete what anybody has seen. */
	if
	:: seen[m] > newest -> newest = seen[m]
	:: else
	fi
}

inline next_order(m) {
#ifdef ONLY_THE_NEWEST
	ordered[m] = newest;
#else
	ordered[m]++;
#endif
	on_its_way[m] = ordered[m]
}

proctype Leader() {
end:	do
	:: atomic { !attached[0] -> attach(0) }
	:: atomic { !attached[1] -> attach(1) }
	:: atomic { READY && newest < EPOCHS && ROOM && ordered[0] >= newest && ordered[1] >= newest -> newest++ }
	:: atomic { READY && ordered[0] < newest && on_its_way[0] == 0 -> next_order(0) }
	:: atomic { READY && ordered[1] < newest && on_its_way[1] == 0 -> next_order(1) }
	:: atomic { READY && final < EPOCHS && voted[S(0, final + 1)] && voted[S(1, final + 1)] -> final++ }
	/* The leader is gone, with all that it knew and what it had just sent, perhaps. */
	:: atomic { changes < CHANGES && READY ->
		changes++;
		newest = final; heard[0] = 0; heard[1] = 0; attached[0] = false; attached[1] = false;
		ordered[0] = final; ordered[1] = final;
		if :: on_its_way[0] = 0 :: skip fi;
		if :: on_its_way[1] = 0 :: skip fi
	   }
	od
}

proctype Source(byte m) {
end:	do
	:: atomic { on_its_way[m] != 0 ->
		if
		:: on_its_way[m] > seen[m] -> seen[m] = on_its_way[m]; voted[S(m, seen[m])] = true
		:: else /* injected already; the vote is repeated */
		fi;
		on_its_way[m] = 0
	   }
	:: atomic { proven[m] < final -> proven[m]++ }
	/* A proof rides in the next vote, or goes alone: once, to the leader of that moment. */
	:: atomic { attached[m] && told[m] < proven[m] -> told[m] = proven[m]; heard[m] = proven[m] }
	od
}

proctype AtTheEnd() {
	timeout -> assert(final == EPOCHS)
}

init { atomic { run Leader(); run Source(0); run Source(1); run AtTheEnd() } }
