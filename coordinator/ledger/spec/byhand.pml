/*
 * A transaction by hand, its outcome and the floor. Its client may ask for the commit, somebody in doubt may
 * ask for the outcome; both may be late and repeated, and retirement forgets what is resolved. The id carries
 * its time. Whoever was told a verdict once is never told another.
 */
#define ID 2     /* the time in the id */
#define LAST 6   /* the end of time */
#define UNKNOWN 0
#define COMMITTED 1
#define ABORTED 2

byte now, floor;
byte record;                 /* what the ledger holds of it */
bool resolved;
byte told;                   /* the first verdict that anybody heard */
byte asked;                  /* how often commands came */
byte branch[2];              /* 0 prepared, 1 committed, 2 rolled back */

#ifdef NO_FLOOR
#define BELOW false
#else
#define BELOW (ID < floor)
#endif
#ifdef RETIRED_BY_COUNT
#define MAY_RETIRE true
#else
#define MAY_RETIRE (ID < floor)
#endif

inline tell(v) {
	assert(told == UNKNOWN || told == v);
	told = v
}

/* Commit(txn, handles). A record is looked for first; below the floor without one: too old, no verdict. */
inline commit() {
	if
	:: record != UNKNOWN -> tell(record)
	:: record == UNKNOWN && BELOW -> skip
	:: else -> record = COMMITTED; tell(COMMITTED)
	fi
}

/* PresumeAbort(txn): an unknown transaction is aborted by the question. */
inline presume_abort() {
	if
	:: record != UNKNOWN -> tell(record)
	:: record == UNKNOWN && BELOW -> skip
	:: else -> record = ABORTED; tell(ABORTED)
	fi
}

active proctype Everybody() {
end:	do
	:: atomic { now < LAST -> now++ }
	:: atomic { now >= ID && asked < 4 -> asked++; commit() }
	:: atomic { now >= ID && asked < 4 -> asked++; presume_abort() }
	/* Branches follow the record, and are proven. */
	:: atomic { record != UNKNOWN && branch[0] == 0 -> branch[0] = record }
	:: atomic { record != UNKNOWN && branch[1] == 0 -> branch[1] = record }
	:: atomic { record != UNKNOWN && !resolved && branch[0] != 0 && branch[1] != 0 ->
		assert(branch[0] == branch[1]);
		resolved = true
	   }
	/* A prepared branch below the floor without a record is dead. */
	:: atomic { record == UNKNOWN && ID < floor && branch[0] == 0 -> assert(told != COMMITTED); branch[0] = ABORTED }
	:: atomic { record == UNKNOWN && ID < floor && branch[1] == 0 -> assert(told != COMMITTED); branch[1] = ABORTED }
	/* Retire lifts the floor past what is resolved, and drops records below it. */
	:: atomic { floor < now && (floor < ID || record == UNKNOWN || resolved) -> floor++ }
	:: atomic { record != UNKNOWN && resolved && MAY_RETIRE -> record = UNKNOWN; resolved = false }
	od
}

active proctype AtTheEnd() {
	timeout -> assert(record == UNKNOWN || resolved)
}
