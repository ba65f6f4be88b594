/*
 * The deadline of a vote. A resource drops prepared work DROP ticks after the prepare. The vote says how much
 * is left, measured when it is sent, and the newest stamp that its sender had heard before: a leader's term and
 * clock. It may be long on its way. Leaders have clocks of their own. A commit is proposed only if more than
 * BUDGET ticks are left by the leader's count, and takes at most that long.
 */
#define DROP 6
#define BUDGET 2
#define LAST 12  /* the end of time */
#define OFFSET 5 /* the first leader's clock, ahead of the second one's */

byte now;
byte term = 1;
byte prepared_at;            /* 0: not yet */
bool stamped;                /* the member has heard a stamp */
byte stamp_term, stamp_clock;
bool sent;                   /* a vote is on its way */
byte left, vote_term, vote_clock;
bool proposed, finished;
byte proposed_at;

#define CLOCK (now + (2 - term) * OFFSET)

#ifdef COUNTED_FROM_ARRIVAL
#define LEFT_NOW (left)
#else
#define LEFT_NOW (vote_clock + left - CLOCK)
#endif
#ifdef STAMP_OF_ANY_TERM
#define SAME_TERM true
#else
#define SAME_TERM (vote_term == term)
#endif

active proctype Time() {
end:	do
	/* A proposed commit is in the resource before its budget is spent. */
	:: atomic { now < LAST && (!proposed || finished || now < proposed_at + BUDGET) -> now++ }
	od
}

active proctype Member() {
end:	do
	:: atomic { prepared_at == 0 && now > 0 -> prepared_at = now }
	:: atomic { !sent && !proposed && prepared_at != 0 && stamped && now < prepared_at + DROP ->
		sent = true; left = prepared_at + DROP - now; vote_term = stamp_term; vote_clock = stamp_clock
	   }
	od
}

active proctype Leader() {
end:	do
	:: atomic { !sent && (!stamped || stamp_term != term || stamp_clock != CLOCK) ->
		stamped = true; stamp_term = term; stamp_clock = CLOCK
	   }
	:: atomic { term == 1 && !proposed -> term = 2 }
	:: atomic { sent && !proposed && SAME_TERM && vote_clock + left >= CLOCK && LEFT_NOW > BUDGET ->
		proposed = true; proposed_at = now
	   }
#ifdef COUNTED_FROM_ARRIVAL
	:: atomic { sent && !proposed && SAME_TERM && LEFT_NOW > BUDGET -> proposed = true; proposed_at = now }
#endif
	/* Another term's stamp, or too late: answered with a stamp, and sent again. */
	:: atomic { sent && !proposed && (!SAME_TERM || vote_clock + left <= CLOCK + BUDGET) -> sent = false }
	:: atomic { proposed && !finished ->
		assert(now < prepared_at + DROP); /* what is decided is still there to be committed */
		finished = true
	   }
	od
}
