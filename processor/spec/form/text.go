package form

// Pos is a place in the file; both count from 1, 0 is unknown.
type Pos struct{ Line, Column int }

// Text is a value and where it stands.
type Text struct {
	Value string
	At    Pos

	in *source // for places within the value
}

// Field is a name and its expression, in the order of the file.
type Field struct {
	Name string
	Expr Text
}
