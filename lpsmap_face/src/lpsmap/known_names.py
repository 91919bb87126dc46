"""Where public names of this project are, by lpsmap_face/write_stub.py."""

PACKS = {
    "lpsmap-decode": "solve_many",
    "lpsmap-factors-logic": (
        "AndOut AtMostOne Budget Dense Imply Knapsack Nand Or OrOut Pair Potts Xor XorOut"
    ),
    "lpsmap-factors-struct": (
        "Alignment BinaryTree Bits DepTree HeadAutomaton Matching ModifierBudget Permutation "
        "SemiMarkov Sequence SequenceBudget SequenceDistance SequenceSpans TopK"
    ),
    "lpsmap-search": "DMVTree",
    "lpsmap-torch": "TorchFactorGraph",
}
"""Distributions, with the names that they add to ``lpsmap``."""

MODULES = {
    "lpsmap": (
        "ALGORITHM_1 ConvergenceWarning Factor FactorGraph PFactorGraph Solution Status "
        "TorchFactorGraph Variables plot solve_many stack"
    ),
    "lpsmap_core": (
        "Backend CompilationNotice CompiledEngine Deadline Direction Distribution "
        "Distributions Engine FREE Factors LOWER LinearConstraints LocalScores LocalSolution "
        "LocalSolver Options Plan Product Scores SolvedGraph Start Structure Structures TIED "
        "TIGHT TensorOracle UNSOLVED UPPER as_variables bounded_sums boxed_solution "
        "ended_by_ctrl_c hookimpl installed interrupted kernel largest_arity leaf registered"
    ),
    "lpsmap_decode": (
        "Answer Assignment BatchExecutor Conditioned Decoder Evaluation FgFormat FileFormat "
        "FileFormatError HighsSolver JsonFormat MapSolver MarkovNetwork MaxSatSolver "
        "NamedGraph NodeBatch Outcome Program Search SearchProgress SearchResult SearchState "
        "SolverLimits Space UaiFormat Unfinished WcnfFormat assignment_text count_redundant "
        "factor_named file_bytes read_assignment read_evidence read_graph read_network "
        "score_assignment write_assignment write_graph write_text"
    ),
    "lpsmap_dynamic": (
        "Beliefs Counts DynamicProgram EliminationOrder Found Gibbs GraphGibbs GraphSamples "
        "Hypergraph HypergraphBuilder HypergraphFactor HypergraphInference Inference Items "
        "Labels LogPartition POLL_PERIOD Point Row Tables add_exactly all_variables as_scores"
        " best_additionals cheapest_order check_accepted check_fits_memory check_root "
        "check_solve_options check_square clip_row compare_maxima complete_assignment "
        "count_bounds counts_of distinct_rows in_factors infeasible_variables labels_of "
        "min_subset_paths minimum_fill objective_difference one_of_each_group "
        "project_budget_rows read_labels refuse_arguments subset_hypergraph sum_exactly "
        "two_sum write_point"
    ),
    "lpsmap_jax": "sparse_map sparse_map_loss",
    "lpsmap_search": (
        "BinaryGrammar Certified Corpus CountConstraint CountModel DependencyModelWithValence"
        " HiddenMarkovModel RankedStructure TaggedSentence Trained TreeSize directed_accuracy"
        " expectation_maximisation expected_counts global_search k_best padded_heads parse "
        "read_conllu restarts sampled_counts sampled_sentences sparse_counts tree_size "
        "universal_rules verb_noun_adjective viterbi"
    ),
    "lpsmap_torch.estimators": (
        "Estimate Estimator GibbsMarginals MAP PerturbAndMAP Sample SparseMarginals "
        "score_function_loss"
    ),
    "lpsmap_torch.layers": (
        "LPMatchingAttention LPSequenceAttention LatentTree LayerSolution MatchingAttention "
        "Rationale Samples SequenceAttention SparseMAP"
    ),
    "lpsmap_torch.losses": (
        "CRFLoss MarginCRFLoss MarginSparseMAPLoss PerceptronLoss SparseMAPLoss "
        "StructuredHingeLoss sparsemap_loss"
    ),
}
"""Modules, with their public names other than factor types."""
