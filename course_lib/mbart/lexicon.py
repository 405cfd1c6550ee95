# ruff: noqa: E501  (the tables are read across)
"""The words of the generated corpus, one concept a row, with the forms each language needs.

Only what cannot be derived by a rule of `grammar.py` is written down. Columns are separated by `|`,
forms by blanks, and `_` stands for a blank inside a form.

Nouns: English singular and plural | French singular, plural, gender (`h`: the h is aspirated, no
elision) | German singular, plural, gender (`*`: weak noun, every form but the nominative singular
equals the plural) | Spanish singular, plural, gender (`!`: feminine with a stressed initial a, hence
"el hacha").
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """A noun: singular and plural in each language, gender and the marks explained above."""

    name: str
    kind: str
    en: tuple[str, str]
    fr: tuple[str, str]
    fr_gender: str
    de: tuple[str, str]
    de_gender: str
    de_weak: bool
    es: tuple[str, str]
    es_gender: str
    es_stressed_a: bool


@dataclass(frozen=True)
class Adjective:
    """An adjective: French forms and position, German stem, Spanish forms, kinds of noun it fits."""

    name: str
    kind: str
    fits: frozenset[str]
    fr: tuple[str, str, str, str]
    fr_before: bool
    fr_before_vowel: str
    de: str
    es: tuple[str, str, str, str]


@dataclass(frozen=True)
class Verb:
    """A verb in the third person: its forms, who can do it (`subjects`) and to what (`objects`)."""

    name: str
    frame: str
    subjects: frozenset[str]
    objects: frozenset[str]
    en: tuple[str, str, str]
    fr_present: tuple[str, str]
    fr_participle: str
    fr_future: str
    fr_with_etre: bool
    de: tuple[str, str, str]
    es_present: str
    es_past: tuple[str, str]
    es_future: str


@dataclass(frozen=True)
class Place:
    """A place with the preposition that each language puts before it."""

    name: str
    en: tuple[str, str]
    fr: tuple[str, str, str]
    de: tuple[str, str, str]
    es: tuple[str, str, str]


@dataclass(frozen=True)
class Time:
    """An adverbial of time and the tenses that it goes with."""

    name: str
    tenses: tuple[str, ...]
    en: str
    fr: str
    de: str
    es: str


NOUNS_BY_KIND = {
    "animal": """
        dog dogs             | chien chiens m           | Hund Hunde m               | perro perros m
        cat cats             | chat chats m             | Katze Katzen f             | gato gatos m
        horse horses         | cheval chevaux m         | Pferd Pferde n             | caballo caballos m
        cow cows             | vache vaches f           | Kuh Kühe f                 | vaca vacas f
        bird birds           | oiseau oiseaux m         | Vogel Vögel m              | pájaro pájaros m
        wolf wolves          | loup loups m             | Wolf Wölfe m               | lobo lobos m
        lion lions           | lion lions m             | Löwe Löwen m*              | león leones m
        eagle eagles         | aigle aigles m           | Adler Adler m              | águila águilas f!
        rabbit rabbits       | lapin lapins m           | Kaninchen Kaninchen n      | conejo conejos m
        elephant elephants   | éléphant éléphants m     | Elefant Elefanten m*       | elefante elefantes m
        monkey monkeys       | singe singes m           | Affe Affen m*              | mono monos m
        frog frogs           | grenouille grenouilles f | Frosch Frösche m           | rana ranas f
        bee bees             | abeille abeilles f       | Biene Bienen f             | abeja abejas f
        hedgehog hedgehogs   | hérisson hérissons mh    | Igel Igel m                | erizo erizos m
    """,
    "person": """
        man men              | homme hommes m           | Mann Männer m              | hombre hombres m
        woman women          | femme femmes f           | Frau Frauen f              | mujer mujeres f
        boy boys             | garçon garçons m         | Junge Jungen m*            | muchacho muchachos m
        girl girls           | fille filles f           | Mädchen Mädchen n          | muchacha muchachas f
        child children       | enfant enfants m         | Kind Kinder n              | niño niños m
        teacher teachers     | professeur professeurs m | Lehrer Lehrer m            | profesor profesores m
        doctor doctors       | médecin médecins m       | Arzt Ärzte m               | médico médicos m
        farmer farmers       | agriculteur agriculteurs m | Bauer Bauern m*          | agricultor agricultores m
        king kings           | roi rois m               | König Könige m             | rey reyes m
        queen queens         | reine reines f           | Königin Königinnen f       | reina reinas f
        sister sisters       | sœur sœurs f             | Schwester Schwestern f     | hermana hermanas f
        brother brothers     | frère frères m           | Bruder Brüder m            | hermano hermanos m
        actress actresses    | actrice actrices f       | Schauspielerin Schauspielerinnen f | actriz actrices f
        student students     | étudiant étudiants m     | Student Studenten m*       | estudiante estudiantes m
    """,
    "food": """
        apple apples         | pomme pommes f           | Apfel Äpfel m              | manzana manzanas f
        pear pears           | poire poires f           | Birne Birnen f             | pera peras f
        egg eggs             | œuf œufs m               | Ei Eier n                  | huevo huevos m
        cake cakes           | gâteau gâteaux m         | Kuchen Kuchen m            | pastel pasteles m
        orange oranges       | orange oranges f         | Orange Orangen f           | naranja naranjas f
        tomato tomatoes      | tomate tomates f         | Tomate Tomaten f           | tomate tomates m
        onion onions         | oignon oignons m         | Zwiebel Zwiebeln f         | cebolla cebollas f
        cheese cheeses       | fromage fromages m       | Käse Käse m                | queso quesos m
        soup soups           | soupe soupes f           | Suppe Suppen f             | sopa sopas f
        banana bananas       | banane bananes f         | Banane Bananen f           | plátano plátanos m
        carrot carrots       | carotte carottes f       | Karotte Karotten f         | zanahoria zanahorias f
        lemon lemons         | citron citrons m         | Zitrone Zitronen f         | limón limones m
        sausage sausages     | saucisse saucisses f     | Wurst Würste f             | salchicha salchichas f
        cherry cherries      | cerise cerises f         | Kirsche Kirschen f         | cereza cerezas f
    """,
    "tool": """
        knife knives         | couteau couteaux m       | Messer Messer n            | cuchillo cuchillos m
        hammer hammers       | marteau marteaux m       | Hammer Hämmer m            | martillo martillos m
        axe axes             | hache haches fh          | Axt Äxte f                 | hacha hachas f!
        key keys             | clé clés f               | Schlüssel Schlüssel m      | llave llaves f
        rope ropes           | corde cordes f           | Seil Seile n               | cuerda cuerdas f
        ladder ladders       | échelle échelles f       | Leiter Leitern f           | escalera escaleras f
        shovel shovels       | pelle pelles f           | Schaufel Schaufeln f       | pala palas f
        brush brushes        | brosse brosses f         | Bürste Bürsten f           | cepillo cepillos m
        needle needles       | aiguille aiguilles f     | Nadel Nadeln f             | aguja agujas f
        pencil pencils       | crayon crayons m         | Bleistift Bleistifte m     | lápiz lápices m
        bucket buckets       | seau seaux m             | Eimer Eimer m              | cubo cubos m
    """,
    "clothing": """
        shirt shirts         | chemise chemises f       | Hemd Hemden n              | camisa camisas f
        hat hats             | chapeau chapeaux m       | Hut Hüte m                 | sombrero sombreros m
        coat coats           | manteau manteaux m       | Mantel Mäntel m            | abrigo abrigos m
        shoe shoes           | chaussure chaussures f   | Schuh Schuhe m             | zapato zapatos m
        dress dresses        | robe robes f             | Kleid Kleider n            | vestido vestidos m
        glove gloves         | gant gants m             | Handschuh Handschuhe m     | guante guantes m
        skirt skirts         | jupe jupes f             | Rock Röcke m               | falda faldas f
    """,
    "furniture": """
        table tables         | table tables f           | Tisch Tische m             | mesa mesas f
        chair chairs         | chaise chaises f         | Stuhl Stühle m             | silla sillas f
        bed beds             | lit lits m               | Bett Betten n              | cama camas f
        lamp lamps           | lampe lampes f           | Lampe Lampen f             | lámpara lámparas f
        mirror mirrors       | miroir miroirs m         | Spiegel Spiegel m          | espejo espejos m
        cupboard cupboards   | armoire armoires f       | Schrank Schränke m         | armario armarios m
        clock clocks         | horloge horloges f       | Uhr Uhren f                | reloj relojes m
    """,
    "vehicle": """
        car cars             | voiture voitures f       | Auto Autos n               | coche coches m
        boat boats           | bateau bateaux m         | Boot Boote n               | barco barcos m
        bicycle bicycles     | vélo vélos m             | Fahrrad Fahrräder n        | bicicleta bicicletas f
        train trains         | train trains m           | Zug Züge m                 | tren trenes m
        plane planes         | avion avions m           | Flugzeug Flugzeuge n       | avión aviones m
        truck trucks         | camion camions m         | Lastwagen Lastwagen m      | camión camiones m
    """,
}

# French: masculine, feminine, masculine plural, then `<` where it stands before the noun and the
# masculine form before a vowel where that differs. Spanish: masculine, feminine, masculine plural.
# Last column: the kinds of noun it fits.
ADJECTIVES_BY_KIND = {
    "colour": """
        red       | rouge rouge rouges              | rot      | rojo roja rojos                | things
        blue      | bleu bleue bleus                | blau     | azul azul azules               | things
        green     | vert verte verts                | grün     | verde verde verdes             | things
        white     | blanc blanche blancs            | weiß     | blanco blanca blancos          | things animal
        black     | noir noire noirs                | schwarz  | negro negra negros             | things animal
        yellow    | jaune jaune jaunes              | gelb     | amarillo amarilla amarillos    | things
    """,
    "quality": """
        big       | grand grande grands <           | groß     | grande grande grandes          | things animal
        small     | petit petite petits <           | klein    | pequeño pequeña pequeños       | things animal
        old       | vieux vieille vieux < vieil     | alt      | viejo vieja viejos             | things animal person
        new       | nouveau nouvelle nouveaux < nouvel | neu   | nuevo nueva nuevos             | things
        beautiful | beau belle beaux < bel          | schön    | hermoso hermosa hermosos       | things animal person
        young     | jeune jeune jeunes <            | jung     | joven joven jóvenes            | animal person
        expensive | cher chère chers                | teur     | caro cara caros                | things food
        heavy     | lourd lourde lourds             | schwer   | pesado pesada pesados          | things
        clean     | propre propre propres           | sauber   | limpio limpia limpios          | things animal
        dirty     | sale sale sales                 | schmutzig | sucio sucia sucios            | things animal
        happy     | heureux heureuse heureux        | glücklich | feliz feliz felices           | person
        sad       | triste triste tristes           | traurig  | triste triste tristes          | person animal
        tired     | fatigué fatiguée fatigués       | müd      | cansado cansada cansados       | person animal
        sick      | malade malade malades           | krank    | enfermo enferma enfermos       | person animal
        strong    | fort forte forts                | stark    | fuerte fuerte fuertes          | person animal
        rich      | riche riche riches              | reich    | rico rica ricos                | person
        hungry    | affamé affamée affamés          | hungrig  | hambriento hambrienta hambrientos | person animal
    """,
}

# English base, third person singular, past | French present singular and plural, participle, stem of
# the future, `e` where the past is built with être | German infinitive, present and past singular |
# Spanish present singular, past singular and plural, stem of the future | subjects | objects.
VERBS_BY_FRAME = {
    "intransitive": """
        sleep sleeps slept    | dort dorment dormi dormir               | schlafen schläft schlief     | duerme durmió durmieron dormir        | person animal |
        run runs ran          | court courent couru courr               | rennen rennt rannte          | corre corrió corrieron correr         | person animal |
        swim swims swam       | nage nagent nagé nager                  | schwimmen schwimmt schwamm   | nada nadó nadaron nadar               | person animal |
        fall falls fell       | tombe tombent tombé tomber e            | fallen fällt fiel            | cae cayó cayeron caer                 | person animal |
        stay stays stayed     | reste restent resté rester e            | bleiben bleibt blieb         | se_queda se_quedó se_quedaron se_quedar | person animal |
        wait waits waited     | attend attendent attendu attendr        | warten wartet wartete        | espera esperó esperaron esperar       | person animal |
        play plays played     | joue jouent joué jouer                  | spielen spielt spielte       | juega jugó jugaron jugar              | person animal |
        sing sings sang       | chante chantent chanté chanter          | singen singt sang            | canta cantó cantaron cantar           | person |
        dance dances danced   | danse dansent dansé danser              | tanzen tanzt tanzte          | baila bailó bailaron bailar           | person |
        work works worked     | travaille travaillent travaillé travailler | arbeiten arbeitet arbeitete | trabaja trabajó trabajaron trabajar | person |
        smile smiles smiled   | sourit sourient souri sourir            | lächeln lächelt lächelte     | sonríe sonrió sonrieron sonreir       | person |
        cry cries cried       | pleure pleurent pleuré pleurer          | weinen weint weinte          | llora lloró lloraron llorar           | person |
    """,
    "transitive": """
        see sees saw          | voit voient vu verr                     | sehen sieht sah              | ve vio vieron ver                     | person animal | person animal food things
        find finds found      | trouve trouvent trouvé trouver          | finden findet fand           | encuentra encontró encontraron encontrar | person animal | person animal food things
        look_for looks_for looked_for | cherche cherchent cherché chercher | suchen sucht suchte       | busca buscó buscaron buscar           | person animal | person animal food things
        hear hears heard      | entend entendent entendu entendr        | hören hört hörte             | oye oyó oyeron oir                    | person animal | person animal vehicle
        love loves loved      | aime aiment aimé aimer                  | lieben liebt liebte          | ama amó amaron amar                   | person        | person animal
        draw draws drew       | dessine dessinent dessiné dessiner      | zeichnen zeichnet zeichnete  | dibuja dibujó dibujaron dibujar       | person        | person animal food things
        eat eats ate          | mange mangent mangé manger              | essen isst aß                | come comió comieron comer             | person animal | food
        taste tastes tasted   | goûte goûtent goûté goûter              | probieren probiert probierte | prueba probó probaron probar          | person        | food
        buy buys bought       | achète achètent acheté achèter          | kaufen kauft kaufte          | compra compró compraron comprar       | person        | food things
        sell sells sold       | vend vendent vendu vendr                | verkaufen verkauft verkaufte | vende vendió vendieron vender         | person        | food things
        clean cleans cleaned  | nettoie nettoient nettoyé nettoier      | putzen putzt putzte          | limpia limpió limpiaron limpiar       | person        | tool clothing furniture vehicle
        wash washes washed    | lave lavent lavé laver                  | waschen wäscht wusch         | lava lavó lavaron lavar               | person        | clothing food
        carry carries carried | porte portent porté porter              | tragen trägt trug            | lleva llevó llevaron llevar           | person        | food tool clothing furniture
        lose loses lost       | perd perdent perdu perdr                | verlieren verliert verlor    | pierde perdió perdieron perder        | person        | tool clothing
        use uses used         | utilise utilisent utilisé utiliser      | benutzen benutzt benutzte    | usa usó usaron usar                   | person        | tool vehicle
        steal steals stole    | vole volent volé voler                  | stehlen stiehlt stahl        | roba robó robaron robar               | person        | food things
    """,
    "ditransitive": """
        give gives gave       | donne donnent donné donner              | geben gibt gab               | da dio dieron dar                     | person | food tool clothing furniture
        show shows showed     | montre montrent montré montrer          | zeigen zeigt zeigte          | muestra mostró mostraron mostrar      | person | food things animal
        send sends sent       | envoie envoient envoyé enverr           | schicken schickt schickte    | envía envió enviaron enviar           | person | food tool clothing furniture
        bring brings brought  | apporte apportent apporté apporter      | bringen bringt brachte       | trae trajo trajeron traer             | person | food tool clothing furniture
        lend lends lent       | prête prêtent prêté prêter              | leihen leiht lieh            | presta prestó prestaron prestar       | person | tool clothing vehicle
    """,
}  # fmt: skip

PLACE_ROWS = """
    in garden   | dans jardin m  | in Garten m    | en jardín m
    in kitchen  | dans cuisine f | in Küche f     | en cocina f
    in forest   | dans forêt f   | in Wald m      | en bosque m
    at market   | à marché m     | auf Markt m    | en mercado m
    at school   | à école f      | in Schule f    | en escuela f
    in city     | dans ville f   | in Stadt f     | en ciudad f
    in house    | dans maison f  | in Haus n      | en casa f
    in church   | dans église f  | in Kirche f    | en iglesia f
    in street   | dans rue f     | auf Straße f   | en calle f
    on beach    | sur plage f    | an Strand m    | en playa f
    in park     | dans parc m    | in Park m      | en parque m
    at station  | à gare f       | an Bahnhof m   | en estación f
    in hotel    | dans hôtel m   | in Hotel n     | en hotel m
    in castle   | dans château m | in Schloss n   | en castillo m
"""

TIME_ROWS = """
    yesterday | past | yesterday        | hier                 | gestern       | ayer
    last_week | past | last_week        | la_semaine_dernière  | letzte_Woche  | la_semana_pasada
    tomorrow  | future | tomorrow       | demain               | morgen        | mañana
    next_week | future | next_week      | la_semaine_prochaine | nächste_Woche | la_próxima_semana
    now       | present | now           | maintenant           | jetzt         | ahora
    today     | present | today         | aujourd'hui          | heute         | hoy
    every_day | present | every_day     | chaque_jour          | jeden_Tag     | todos_los_días
    morning   | past present future | in_the_morning   | le_matin     | am_Morgen     | por_la_mañana
    afternoon | past present future | in_the_afternoon | l'après-midi | am_Nachmittag | por_la_tarde
    night     | past present future | at_night         | la_nuit      | in_der_Nacht  | por_la_noche
    summer    | past present future | in_summer        | en_été       | im_Sommer     | en_verano
    winter    | past present future | in_winter        | en_hiver     | im_Winter     | en_invierno
"""

THINGS = frozenset({"tool", "clothing", "furniture", "vehicle"})


def _rows(table: str) -> list[list[list[str]]]:
    """A table as rows of columns of forms."""
    return [
        [[form.replace("_", " ") for form in column.split()] for column in line.split("|")]
        for line in table.strip().splitlines()
    ]


def _kinds(words: list[str]) -> frozenset[str]:
    """Kinds of noun, with `things` written out."""
    named = frozenset(words)
    return named - {"things"} | THINGS if "things" in named else named


def _noun(kind: str, row: list[list[str]]) -> Noun:
    en, fr, de, es = row
    return Noun(
        name=en[0],
        kind=kind,
        en=(en[0], en[1]),
        fr=(fr[0], fr[1]),
        fr_gender=fr[2][0],
        de=(de[0], de[1]),
        de_gender=de[2][0],
        de_weak=de[2].endswith("*"),
        es=(es[0], es[1]),
        es_gender=es[2][0],
        es_stressed_a=es[2].endswith("!"),
    )


def _adjective(kind: str, row: list[list[str]]) -> Adjective:
    (name,), fr, (de,), es, fits = row
    return Adjective(
        name=name,
        kind=kind,
        fits=_kinds(fits),
        fr=(fr[0], fr[1], fr[2], fr[1] + "s"),
        fr_before="<" in fr,
        fr_before_vowel=fr[4] if len(fr) > 4 else fr[0],
        de=de,
        es=(es[0], es[1], es[2], es[2] if es[0] == es[1] else es[1] + "s"),
    )


def _verb(frame: str, row: list[list[str]]) -> Verb:
    en, fr, de, es, subjects, objects = row
    return Verb(
        name=en[0],
        frame=frame,
        subjects=_kinds(subjects),
        objects=_kinds(objects),
        en=(en[0], en[1], en[2]),
        fr_present=(fr[0], fr[1]),
        fr_participle=fr[2],
        fr_future=fr[3],
        fr_with_etre=fr[-1] == "e",
        de=(de[0], de[1], de[2]),
        es_present=es[0],
        es_past=(es[1], es[2]),
        es_future=es[3],
    )


def _place(row: list[list[str]]) -> Place:
    en, fr, de, es = (tuple(column) for column in row)
    return Place(en[1], en, fr, de, es)


def _time(row: list[list[str]]) -> Time:
    (name,), tenses, *adverbials = row
    return Time(name, tuple(tenses), *(forms[0] for forms in adverbials))


NOUNS = {n.name: n for kind, table in NOUNS_BY_KIND.items() for n in (_noun(kind, r) for r in _rows(table))}
ADJECTIVES = {
    a.name: a
    for kind, table in ADJECTIVES_BY_KIND.items()
    for a in (_adjective(kind, r) for r in _rows(table))
}
VERBS = {
    v.name: v for frame, table in VERBS_BY_FRAME.items() for v in (_verb(frame, r) for r in _rows(table))
}
PLACES = {p.name: p for p in map(_place, _rows(PLACE_ROWS))}
TIMES = {t.name: t for t in map(_time, _rows(TIME_ROWS))}

# The French words whose h is aspirated: nothing is elided before them.
FR_ASPIRATED = frozenset(
    form
    for table in NOUNS_BY_KIND.values()
    for row in _rows(table)
    if row[1][2].endswith("h")
    for form in row[1][:2]
)

# "the" and "a" are grammar; the others carry a meaning of their own. `True`: only with a plural.
DETERMINERS = {"the": False, "a": False, "my": False, "this": False, "many": True, "two": True, "three": True}
