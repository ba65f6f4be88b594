package journal

// String is the path, for people.
func (f *File) String() string { return f.path }
