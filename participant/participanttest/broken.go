package participanttest

// breakage is a way to break the contract, one per check of the kit, so that the kit's own tests
// can see it turn red.
type breakage uint8

const (
	intact breakage = iota
	neverFences
	newHandleEachTime
	emptyIsYes
	visibleEarly
	repeatsWrite
	unknownFails
	noMarkers
	listsByPrefix
	listsNothing
	closePublishes
	hugeHandles
	hashedNames
	discardsPrepared
	rollbackPublishes
	takesAnyHandle
	inspectCommits
	leaksGoroutine
	losesOnCancel
	losesOnCrash
	mixesBranches
	anonymous
	oneHandle
	beginsOnce
)
