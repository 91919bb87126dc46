"""Global search for latent-variable models: Viterbi training to a proved optimum."""

from lpsmap_search.binary_grammar import BinaryGrammar
from lpsmap_search.conllu import read_conllu
from lpsmap_search.constraints import CountConstraint, universal_rules
from lpsmap_search.corpus import Corpus
from lpsmap_search.count_model import CountModel
from lpsmap_search.dependency_model import DependencyModelWithValence
from lpsmap_search.dmv_tree import DMVTree
from lpsmap_search.global_search import Certified, global_search
from lpsmap_search.hidden_markov_model import HiddenMarkovModel
from lpsmap_search.inside_outside import expected_counts, sampled_counts
from lpsmap_search.k_best import RankedStructure, k_best
from lpsmap_search.local_search import Trained, expectation_maximisation, restarts
from lpsmap_search.parses import directed_accuracy, parse
from lpsmap_search.sparse_counts import sparse_counts
from lpsmap_search.synthetic import sampled_sentences, verb_noun_adjective
from lpsmap_search.tagged_sentence import TaggedSentence, padded_heads
from lpsmap_search.tree_size import TreeSize, tree_size
from lpsmap_search.viterbi import viterbi

__version__ = "0.1.0"

__all__ = [
    "BinaryGrammar",
    "Certified",
    "Corpus",
    "CountConstraint",
    "CountModel",
    "DMVTree",
    "DependencyModelWithValence",
    "HiddenMarkovModel",
    "RankedStructure",
    "TaggedSentence",
    "Trained",
    "TreeSize",
    "directed_accuracy",
    "expectation_maximisation",
    "expected_counts",
    "global_search",
    "k_best",
    "padded_heads",
    "parse",
    "read_conllu",
    "restarts",
    "sampled_counts",
    "sampled_sentences",
    "sparse_counts",
    "tree_size",
    "universal_rules",
    "verb_noun_adjective",
    "viterbi",
]
