// Package file makes a directory a sink and a source of pipelines. The sink writes JSON lines into
// staged files that readers do not see, makes them durable before its vote, and publishes them by
// giving each its final name, never over another file. A manifest per epoch, written last, is the
// marker: it proves the commit, and readers who go by manifests see whole epochs or nothing.
//
// Under the target directory:
//
//	<branch>-0001.jsonl          published files
//	_manifests/<branch>.json     what an epoch published, and that all of it did
//	.unisink/id                  the directory's identity, which handles name
//	.unisink/staged/<branch>/    what is being written, or prepared and not finished
//	.unisink/fence/<holder>      newest generation that was opened here
//
// where <branch> is namespace.pipeline.shard.member.resource.generation.n.
package file
