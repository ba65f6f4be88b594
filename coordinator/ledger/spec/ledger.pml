/*
 * The ledger's part of the model: state and commands. A command names the state it expects; refused, it
 * changes nothing. ok holds the last answer. trace.pml, made from runs of the real machine, includes this
 * file alone.
 */
#ifndef MEMBERS
#define MEMBERS 2
#endif
#ifndef GENERATIONS
#define GENERATIONS 2
#endif
#ifndef EPOCHS
#define EPOCHS 2
#endif

#define SLOTS ((GENERATIONS + 1) * (EPOCHS + 1))
#define E(g, n) ((g) * (EPOCHS + 1) + (n)) /* an epoch, so that older ones are less */
#define V(m, e) ((m) * SLOTS + (e))        /* a member's share of it */

byte current;                  /* the newest generation, 0: none */
bool open[GENERATIONS + 1];
byte final[GENERATIONS + 1];
byte decided;                  /* the restore point, as a position in the source: one epoch is one step */
byte base[GENERATIONS + 1];    /* the restore point that a generation started from */
byte vote[MEMBERS * SLOTS];    /* votes that have left their process: the branch's name, 0 none */
byte listed[MEMBERS * SLOTS];  /* the name that stands in the decision */
bool resolved[MEMBERS * SLOTS];

hidden byte ok;
hidden byte k;

#define DECIDED(g, n) ((n) <= final[g])

/* What the commands ask for. */
#ifdef OPEN_WITHOUT_CLOSE
#define CAN_OPEN(from) ((from) == current && current < GENERATIONS)
#else
#define CAN_OPEN(from) ((from) == current && current < GENERATIONS && !open[current])
#endif
#define CAN_CLOSE(g) ((g) > 0 && (g) <= current) /* closed already: a repeat gets its answer */
#ifdef DECIDE_WITH_GAP
#define NEXT(g, n) ((n) > final[g])
#else
#define NEXT(g, n) ((n) == final[g] + 1)
#endif
#ifdef DECIDE_WHEN_CLOSED
#define CAN_DECIDE(g, n) ((g) > 0 && (g) <= current && NEXT(g, n))
#else
#define CAN_DECIDE(g, n) ((g) > 0 && (g) <= current && NEXT(g, n) && open[g])
#endif
#define CAN_RESOLVE(g, n) ((g) > 0 && (g) <= current && (n) > 0 && DECIDED(g, n))
#define CAN_REWIND() (current > 0 && !open[current] && decided > 0)

/* OpenGeneration(scope, from). seen is the restore point that its proposer knew; it counts for nothing,
 * since the entry answers as of itself. */
inline open_generation(from, seen) {
	ok = CAN_OPEN(from);
	if
	:: ok ->
		current++;
		open[current] = true;
#ifdef STALE_RESTORE
		base[current] = seen
#else
		base[current] = decided
#endif
	:: else
	fi
}

/* CloseGeneration(scope, g) */
inline close_generation(g) {
	ok = CAN_CLOSE(g);
	if
	:: ok -> open[g] = false
	:: else
	fi
}

/* Decide(scope, (g, n), votes). Votes do not change, so the entry may as well take them from vote[]. */
inline decide(g, n) {
	ok = CAN_DECIDE(g, n);
	if
	:: ok ->
		assert(base[g] + (n) == decided + 1); /* the decided epochs are one line of the source, without gaps */
		decided++;
		final[g] = n;
		k = 0;
		do
		:: k < MEMBERS ->
			assert(vote[V(k, E(g, n))] != 0); /* a decided epoch holds a vote of every member */
			listed[V(k, E(g, n))] = vote[V(k, E(g, n))];
			k++
		:: else -> break
		od
	:: else
	fi
}

/* Resolve(txn, branch, proof); a repeat is answered and changes nothing. */
inline resolve(m, g, n) {
	ok = CAN_RESOLVE(g, n);
	if
	:: ok -> resolved[V(m, E(g, n))] = true
	:: else
	fi
}

/* Rewind(scope, the restore point before). */
inline rewind() {
	ok = CAN_REWIND();
	if
	:: ok -> decided--
	:: else
	fi
}
